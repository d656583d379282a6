// Tensor, TensorView and tensor_traits: the tensors of modules, and support for the user's tensor classes.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/config.hpp"
#include "stele/precision/element.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0 {

/// The rank of a tensor type whose rank is known only at run time.
inline constexpr int dynamic_rank = -1;

namespace detail {
template <int Rank>
struct extents_of {
  using type = std::array<Extent, static_cast<std::size_t>(Rank)>;
};
template <>
struct extents_of<dynamic_rank> {
  using type = Shape;
};

/// The type of `{{1, 2}, {3, 4}}` for ranks that have rows.
template <class T, int Rank>
struct nested_braces {
  struct type {
    type() = delete;
  };
};
template <class T, int Rank>
requires(Rank >= 2) struct nested_braces<T, Rank> {
  using type = std::initializer_list<std::initializer_list<T>>;
};

template <class Extents>
constexpr std::span<const Extent> as_span(const Extents& extents) noexcept {
  return {extents.data(), extents.size()};
}

/// Returns the row-major position of the element at `index`.
template <class Extents, class... Index>
constexpr std::size_t row_major(const Extents& extents, Index... index) noexcept {
  const std::array<std::size_t, sizeof...(Index)> at{static_cast<std::size_t>(index)...};
  assert(at.size() == extents.size());
  std::size_t position = 0;
  for (std::size_t d = 0; d < at.size(); ++d) {
    assert(at[d] < extents[d]);
    position = position * static_cast<std::size_t>(extents[d]) + at[d];
  }
  return position;
}

/// Returns the number of elements of memory that exists or is about to be allocated. Throws std::bad_alloc if that
/// memory cannot be addressed.
template <class Extents>
std::size_t addressable_count(const Extents& extents, std::size_t element) {
  const auto count = element_count(as_span(extents));
  if (!count || *count > static_cast<std::size_t>(PTRDIFF_MAX) / element) STELE_THROW(std::bad_alloc());
  return static_cast<std::size_t>(*count);
}
}  // namespace detail

/// A row-major tensor that does not own its memory: a pointer and extents. Loading writes to it, but cannot change its
/// shape.
template <class T, int Rank = dynamic_rank>
class TensorView {
 public:
  using value_type = T;
  using Extents = typename detail::extents_of<Rank>::type;
  TensorView() noexcept = default;
  TensorView(T* data, Extents shape) : data_(data), shape_(std::move(shape)) {}

  T* data() const noexcept { return data_; }
  const Extents& shape() const noexcept { return shape_; }
  std::size_t size() const noexcept {
    return data_ ? static_cast<std::size_t>(element_count(detail::as_span(shape_)).value_or(0)) : 0;
  }
  std::span<T> span() const noexcept { return {data_, size()}; }
  template <class... Index>
  T& operator()(Index... index) const noexcept {
    return data_[detail::row_major(shape_, index...)];
  }

 private:
  T* data_ = nullptr;
  Extents shape_{};
};

/// A dense row-major tensor. Owns 64-byte aligned memory, or views memory of a keeper (a mapped file, after a load with
/// Storage::mmap). If the tensor is made from only a shape, its memory is uninitialised; large memory is advised to use
/// huge pages. The tensors of a loaded model share blocks of memory; each block is freed with the last of its tensors.
/// A copy owns its memory. A default-constructed tensor is *unset*: it takes any shape on load.
template <class T, int Rank = dynamic_rank>
class Tensor {
 public:
  using value_type = std::remove_const_t<T>;
  using Extents = typename detail::extents_of<Rank>::type;
  static_assert(Element<value_type>, "a Tensor's element must be a number, bool, float16, bfloat16 or std::complex");

  Tensor() noexcept = default;
  /// Leaves the elements uninitialised, so that a load does not write them twice; zeros() and filled() set them. A
  /// Tensor<bool> must be set before it is saved, because bytes other than 0 and 1 are an error. Throws std::bad_alloc.
  explicit Tensor(Extents shape) : size_(detail::addressable_count(shape, sizeof(T))), shape_(std::move(shape)) {
    data_ = static_cast<value_type*>(detail::allocate(size_ * sizeof(T)));
    memory_ = Memory::own;
  }
  /// Copies `values`. Throws std::invalid_argument if their number differs from the number of elements of the shape,
  /// and std::bad_alloc.
  Tensor(Extents shape, std::span<const value_type> values) : Tensor(std::move(shape)) {
    if (values.size() != size_) STELE_THROW(std::invalid_argument("stele: a Tensor's values do not fit its shape"));
    std::uninitialized_copy_n(values.begin(), size_, data_);
  }
  Tensor(Extents shape, std::initializer_list<value_type> values)
      : Tensor(std::move(shape), std::span<const value_type>(values.begin(), values.size())) {}
  /// Deleted, because braces alone could be rows or a shape: write `Tensor<float, 2>({2, 2}, {1, 2, 3, 4})`.
  Tensor(typename detail::nested_braces<value_type, Rank>::type) = delete;
  /// Views `data`, which `keeper` keeps valid.
  Tensor(T* data, Extents shape, std::shared_ptr<const void> keeper)
      : size_(detail::addressable_count(shape, sizeof(T))),
        shape_(std::move(shape)),
        keeper_(std::move(keeper)),
        memory_(Memory::viewed) {
    data_ = const_cast<value_type*>(data);
  }
  /// Owns a part of a block that `block` keeps alive. No other tensor uses this part.
  static Tensor part_of(std::shared_ptr<void> block, T* data, Extents shape) {
    Tensor t(data, std::move(shape), std::move(block));
    t.memory_ = Memory::part;
    return t;
  }
  static Tensor filled(Extents shape, value_type with) {
    Tensor t(std::move(shape));
    std::uninitialized_fill_n(t.data_, t.size_, with);
    return t;
  }
  static Tensor zeros(Extents shape) { return filled(std::move(shape), value_type{}); }

  Tensor(const Tensor& other) : Tensor() {
    if (!other.is_set()) return;
    Tensor copy(other.shape_);
    std::uninitialized_copy_n(other.data_, other.size_, copy.data_);
    swap(copy);
  }
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor other) noexcept {
    swap(other);
    return *this;
  }
  ~Tensor() {
    if (memory_ == Memory::own) detail::deallocate(data_, size_ * sizeof(T));
  }
  void swap(Tensor& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(shape_, other.shape_);
    std::swap(keeper_, other.keeper_);
    std::swap(memory_, other.memory_);
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const Extents& shape() const noexcept { return shape_; }
  std::size_t rank() const noexcept { return shape_.size(); }
  std::span<T> span() noexcept { return {data_, size_}; }
  std::span<const T> span() const noexcept { return {data_, size_}; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  // The operators check an index only with assert(), like the operators of the standard library.
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  template <class... Index>
  T& operator()(Index... index) noexcept {
    return data_[detail::row_major(shape_, index...)];
  }
  template <class... Index>
  const T& operator()(Index... index) const noexcept {
    return data_[detail::row_major(shape_, index...)];
  }
  TensorView<T, Rank> view() noexcept { return {data_, shape_}; }
  TensorView<const T, Rank> view() const noexcept { return {data_, shape_}; }
  /// Returns false for a default-constructed tensor.
  bool is_set() const noexcept { return memory_ != Memory::unset; }
  /// Returns true if the elements are stored in memory of a keeper (a mapped file), not in the tensor's own memory.
  bool is_view() const noexcept { return memory_ == Memory::viewed; }

 private:
  value_type* data_ = nullptr;
  std::size_t size_ = 0;
  Extents shape_{};
  std::shared_ptr<const void> keeper_;
  enum class Memory : std::uint8_t { unset, own, part, viewed } memory_ = Memory::unset;
};

/// Gives the library access to a tensor type. Specialise it for your tensor class (docs/guide/own-tensor.md):
///
///     using element = float;                                   // an Element
///     static constexpr int rank = 2;                           // or dynamic_rank
///     static Shape shape(const T&);                            // or any contiguous range of Extent
///   and, if the elements are contiguous in row-major order:
///     static const element* data(const T&);  static element* data(T&);
///   else, element by element in row-major order starting at `first`, with any block size:
///     static void read(const T&, std::uint64_t first, std::span<element> out);
///     static void write(T&, std::uint64_t first, std::span<const element> in);
///   and, each optional:
///     static void resize(T&, const Shape&);                    // without it the shape is fixed
///     static bool unset(const T&);                             // takes any shape when loaded in place
///     static void adopt(T&, element* data, const Shape&, std::shared_ptr<const void> keeper);  // becomes a view
///     static void part(T&, element* data, const Shape&, std::shared_ptr<void> block);  // owns a part of a block
///     static void reset(T&);                                   // makes it unset again; without it, t = T()
///     static bool place(const T&, Shape& global, Shape& start);  // T is a box of a larger tensor (Sharded)
///   and, for memory of devices (docs/guide/devices.md):
///     static Location location(const T&);                      // where data() points, if not to main memory
///     static void part(T&, element* data, const Shape&, std::shared_ptr<void> block, Location);  // instead of resize
///   or, for a tensor with all its elements on each of several devices:
///     static std::vector<std::pair<Location, element*>> replicas(T&);  // instead of location; part() for each
///   With read() and write() too, such a tensor needs no Transfer.
///
/// Any member may throw.
template <class T, class Enable = void>
struct tensor_traits;

template <class T, int Rank>
struct tensor_traits<Tensor<T, Rank>> {
  using element = std::remove_const_t<T>;
  using type = Tensor<T, Rank>;
  static constexpr int rank = Rank;
  static Shape shape(const type& t) {
    // An unset tensor has no elements, independent of its later rank; [] would be one element.
    return Rank <= 0 && !t.is_set() ? Shape{0} : Shape(detail::as_span(t.shape()));
  }
  static const element* data(const type& t) { return t.data(); }
  static element* data(type& t) { return const_cast<element*>(t.data()); }
  static void resize(type& t, const Shape& shape) { t = type(extents(shape)); }
  static bool unset(const type& t) { return !t.is_set(); }
  static void adopt(type& t, element* data, const Shape& shape, std::shared_ptr<const void> keeper) {
    t = type(data, extents(shape), std::move(keeper));
  }
  static void part(type& t, element* data, const Shape& shape, std::shared_ptr<void> block) {
    t = type::part_of(std::move(block), data, extents(shape));
  }

 private:
  static typename type::Extents extents(const Shape& shape) {
    if constexpr (Rank == dynamic_rank) {
      return shape;
    } else {
      typename type::Extents e{};
      for (std::size_t i = 0; i < e.size() && i < shape.size(); ++i) e[i] = shape[i];
      return e;
    }
  }
};

template <class T, int Rank>
struct tensor_traits<TensorView<T, Rank>> {
  static_assert(!std::is_const_v<T>, "a module's TensorView must be of mutable elements: loading writes to them");
  using element = T;
  static constexpr int rank = Rank;
  static Shape shape(const TensorView<T, Rank>& t) { return Shape(detail::as_span(t.shape())); }
  static element* data(const TensorView<T, Rank>& t) { return t.data(); }
};

template <class T, std::size_t N>
requires(Element<T> && !std::is_const_v<T>) struct tensor_traits<std::span<T, N>> {
  using element = T;
  static constexpr int rank = 1;
  static Shape shape(const std::span<T, N>& t) { return {t.size()}; }
  static element* data(const std::span<T, N>& t) { return t.data(); }
};

template <class T, class A>
requires(Element<T> && !std::is_same_v<T, bool>) struct tensor_traits<std::vector<T, A>> {
  using element = T;
  static constexpr int rank = 1;
  static Shape shape(const std::vector<T, A>& t) { return {t.size()}; }
  static const element* data(const std::vector<T, A>& t) { return t.data(); }
  static element* data(std::vector<T, A>& t) { return t.data(); }
  static void resize(std::vector<T, A>& t, const Shape& shape) { t.resize(static_cast<std::size_t>(shape[0])); }
  static bool unset(const std::vector<T, A>& t) { return t.empty(); }
};

namespace detail {
/// Element and extents of nested std::array and C arrays, which form one tensor of higher rank.
template <class T>
struct nested_array {
  static constexpr bool value = false;
};
template <class T, std::size_t N>
struct nested_array_level {
  using inner = nested_array<T>;
  static constexpr bool leaf = Element<T>;
  static constexpr bool value = leaf || inner::value;
  static constexpr int rank = [] {
    if constexpr (leaf) {
      return 1;
    } else if constexpr (inner::value) {
      return 1 + inner::rank;
    } else {
      return 0;
    }
  }();
  static constexpr auto first_type() {
    if constexpr (inner::value) {
      return inner::first_type();
    } else {
      return std::type_identity<T>{};
    }
  }
  static void extents(Extent* out) {
    *out = N;
    if constexpr (inner::value) inner::extents(out + 1);
  }
};
template <class T, std::size_t N>
struct nested_array<std::array<T, N>> : nested_array_level<T, N> {};
template <class T, std::size_t N>
struct nested_array<T[N]> : nested_array_level<T, N> {};
}  // namespace detail

template <class T>
requires(detail::nested_array<T>::value && sizeof(T) > 0) struct tensor_traits<T> {
  using element = typename decltype(detail::nested_array<T>::first_type())::type;
  static constexpr int rank = detail::nested_array<T>::rank;
  static Shape shape(const T&) {
    std::array<Extent, static_cast<std::size_t>(rank)> extents{};
    detail::nested_array<T>::extents(extents.data());
    return Shape(extents);
  }
  static const element* data(const T& t) { return reinterpret_cast<const element*>(&t); }
  static element* data(T& t) { return reinterpret_cast<element*>(&t); }
};

}  // namespace stele::inline v0
