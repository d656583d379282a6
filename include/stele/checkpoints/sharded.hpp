// A tensor of which each process of a distributed program owns one box.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

#include "stele/tensor.hpp"

namespace stele::inline v0 {

/// The part of a distributed tensor that this process owns: a box of any rank and size, possibly empty. Equal boxes in
/// several processes are replicas. Usable as a module's field like any tensor. stele::mpi saves and loads it by its
/// position in the whole tensor; other recorders refuse it, unless the box is the whole tensor.
///
/// The elements are unset until local() is assigned or a load fills them.
template <class T, int Rank = dynamic_rank>
class Sharded {
 public:
  using Local = Tensor<T, Rank>;
  /// Makes a tensor without a place: it takes the shape of the first whole tensor that is loaded.
  Sharded() noexcept = default;
  /// Makes the box of `extents` elements that begins at index `start` of a tensor of shape `global`. Throws
  /// std::invalid_argument if the ranks differ or the box exceeds the tensor.
  Sharded(Shape global, Shape start, Shape extents)
      : global_(std::move(global)), start_(std::move(start)), extents_(std::move(extents)), placed_(true) {
    const auto n = static_cast<std::size_t>(Rank);
    bool fits = start_.rank() == global_.rank() && extents_.rank() == global_.rank();
    fits = fits && (Rank == dynamic_rank || global_.rank() == n);
    for (std::size_t d = 0; fits && d < global_.rank(); ++d) {
      fits = start_[d] <= global_[d] && extents_[d] <= global_[d] - start_[d];
    }
    if (!fits) STELE_THROW(std::invalid_argument("stele: a Sharded box does not fit its tensor"));
  }
  /// Makes the whole tensor, in every process.
  static Sharded replicated(const Shape& global) { return Sharded(global, zeros_like(global), global); }
  /// Makes part `part` of `parts` along an axis, divided like torch.chunk and PyTorch's Shard(axis): parts of ceil(n /
  /// parts) indices, the last of which may be smaller or empty. Throws std::invalid_argument if the axis or part does
  /// not exist.
  static Sharded split(const Shape& global, std::size_t axis, std::size_t part, std::size_t parts) {
    if (axis >= global.rank() || part >= parts)
      STELE_THROW(std::invalid_argument("stele: no such part of a Sharded tensor"));
    const Extent n = global[axis];
    const Extent size = (n + parts - 1) / parts;
    const Extent first = std::min<Extent>(n, part * size);
    return Sharded(global, with(zeros_like(global), axis, first), with(global, axis, std::min(size, n - first)));
  }

  const Shape& global_shape() const noexcept { return global_; }
  const Shape& start() const noexcept { return start_; }
  const Shape& extents() const noexcept { return extents_; }
  /// Returns false for a default-constructed tensor.
  bool is_placed() const noexcept { return placed_; }
  Local& local() noexcept { return local_; }
  const Local& local() const noexcept { return local_; }
  /// Allocates the elements and sets them to a number. Throws std::bad_alloc.
  void fill(T with) {
    tensor_traits<Local>::resize(local_, extents_);
    std::uninitialized_fill_n(local_.data(), local_.size(), with);
  }

 private:
  friend struct tensor_traits<Sharded>;
  static Shape zeros_like(const Shape& shape) {
    Shape zeros = shape;
    for (std::size_t d = 0; d < shape.rank(); ++d) zeros = with(zeros, d, 0);
    return zeros;
  }
  static Shape with(const Shape& shape, std::size_t axis, Extent extent) {
    const auto all = std::make_unique<Extent[]>(shape.rank());
    std::copy(shape.begin(), shape.end(), all.get());
    all[axis] = extent;
    return Shape(std::span<const Extent>(all.get(), shape.rank()));
  }

  Shape global_, start_, extents_;
  bool placed_ = false;
  Local local_;
};

template <class T, int Rank>
struct tensor_traits<Sharded<T, Rank>> {
  using type = Sharded<T, Rank>;
  using local = tensor_traits<Tensor<T, Rank>>;
  using element = typename local::element;
  static constexpr int rank = Rank;
  static Shape shape(const type& t) { return t.placed_ ? t.extents_ : local::shape(t.local_); }
  static const element* data(const type& t) { return local::data(t.local_); }
  static element* data(type& t) { return local::data(t.local_); }
  static void resize(type& t, const Shape& shape) {
    if (t.placed_ && shape != t.extents_) {
      STELE_THROW(std::invalid_argument("stele: the loaded tensor does not have the shape of the Sharded box"));
    }
    auto elements = std::move(t.local_);
    if (!t.placed_) t = type::replicated(shape);
    t.local_ = std::move(elements);
    local::resize(t.local_, shape);
  }
  static bool unset(const type& t) { return local::unset(t.local_); }
  static void reset(type& t) { t.local_ = {}; }
  static bool place(const type& t, Shape& global, Shape& start) {
    global = t.global_;
    start = t.start_;
    return t.placed_;
  }
};

}  // namespace stele::inline v0
