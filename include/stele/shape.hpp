// Shape: the extents of a tensor, outermost first. Any rank; up to 8 extents are stored inline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0 {

/// The extent of a tensor along one axis, in elements.
using Extent = std::uint64_t;

/// Returns the number of elements of a tensor with these extents (1 for rank 0); nullopt if the product of the nonzero
/// extents does not fit 64 bits.
constexpr std::optional<std::uint64_t> element_count(std::span<const Extent> extents) noexcept {
  ElementCounter counter;
  for (const Extent e : extents) counter.add(e);
  return counter.count();
}

/// Owned list of extents.
class Shape {
 public:
  static constexpr std::size_t inline_rank = 8;

  Shape() noexcept = default;
  Shape(std::initializer_list<Extent> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const Extent> extents) { assign(extents); }
  template <std::size_t N>
  Shape(const std::array<Extent, N>& extents) : Shape(std::span<const Extent>(extents)) {}  // NOLINT
  /// Copies the extents of any list of integers.
  template <std::forward_iterator I>
  requires std::is_integral_v<std::iter_value_t<I>> Shape(I first, I last) {
    assign(first, static_cast<std::size_t>(std::distance(first, last)));
  }
  Shape(const Shape& other) : Shape(other.span()) {}
  Shape(Shape&& other) noexcept = default;
  Shape& operator=(const Shape& other) {
    if (this != &other) assign(other.span());
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept = default;
  ~Shape() = default;

  void assign(std::span<const Extent> extents) { assign(extents.begin(), extents.size()); }

  std::size_t rank() const noexcept { return rank_; }
  std::size_t size() const noexcept { return rank_; }
  bool empty() const noexcept { return rank_ == 0; }
#if STELE_HEAP
  const Extent* data() const noexcept { return heap_ ? heap_.get() : inline_.data(); }
#else
  const Extent* data() const noexcept { return inline_.data(); }
#endif
  const Extent* begin() const noexcept { return data(); }
  const Extent* end() const noexcept { return data() + rank_; }
  Extent operator[](std::size_t i) const noexcept { return data()[i]; }
  std::span<const Extent> span() const noexcept { return {data(), rank_}; }
  /// Returns the number of elements; nullopt if the product of the nonzero extents does not fit 64 bits.
  std::optional<std::uint64_t> element_count() const noexcept { return v0::element_count(span()); }

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < a.rank_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  template <class I>
  void assign(I first, std::size_t rank) {
    Extent* to = inline_.data();
#if STELE_HEAP
    std::unique_ptr<Extent[]> more;
    if (rank > inline_rank) {
      more = std::make_unique<Extent[]>(rank);
      to = more.get();
    }
#else
    if (rank > inline_rank) __builtin_trap();  // a heap would be needed
#endif
    for (std::size_t i = 0; i < rank; ++i, ++first) *to++ = static_cast<Extent>(*first);
#if STELE_HEAP
    heap_ = std::move(more);
#endif
    rank_ = rank;
  }

  std::array<Extent, inline_rank> inline_{};
#if STELE_HEAP
  std::unique_ptr<Extent[]> heap_;
#endif
  std::size_t rank_ = 0;
};

/// Formats the extents as "[10, 4]"; "[]" for rank 0.
STELE_EXPORT std::string to_string(std::span<const Extent> extents);

}  // namespace stele::inline v0
