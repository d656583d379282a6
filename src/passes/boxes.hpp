// Tensors whose elements are in several parts, each a box (a rectangle of any rank): partitioned variables of
// TensorFlow, tensors of distributed checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/limits.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// A box of a tensor: the first index and the extent along each axis.
struct Box {
  std::vector<Extent> start, length;
};

/// Checks that the boxes lie in the tensor, and that each of its elements is in exactly one. For n boxes that cut k
/// axes, sorts n * 2^k corners, whose memory it takes from `memory`. Errors: malformed, unsupported (more than 8 axes
/// are cut), limit.
STELE_EXPORT Status check_cover(std::span<const Box> boxes, std::span<const Extent> shape, IndexBudget& memory);

/// A leaf whose bytes are in the leaves of its boxes, each row-major. As a whole it is read block by block, and each
/// part is checked as its own stream would: in memory for one block (steps/blocks.hpp), for parts of any size.
class STELE_EXPORT JoinedBoxes {
 public:
  /// The boxes have passed check_cover(), and the bytes of the tensor fit 64 bits. `element`: bytes of an element,
  /// not 0. `parts`: the leaves of the boxes, in the same order. What these point to outlives this object.
  JoinedBoxes(std::span<const Extent> shape, std::size_t element, std::span<const Box> boxes,
              std::span<const Provider> parts);
  JoinedBoxes(const JoinedBoxes&) = delete;
  JoinedBoxes& operator=(const JoinedBoxes&) = delete;
  /// Returns the leaf, which refers to this object.
  Provider provider() const noexcept;
  /// Returns the number of bytes that an object for `parts` boxes takes.
  static std::uint64_t memory(std::size_t parts, std::size_t rank) noexcept;

 private:
  /// A box as runs of bytes that are contiguous in the tensor, too: `count` of them, each of `run` bytes.
  struct Part {
    Provider leaf;
    std::uint64_t run, count;
    std::uint64_t begin, end;  // of the first and the last run in the tensor
    std::size_t axis;          // the innermost axis that is cut, or 0: a run has its rows and all of the axes after it
    std::size_t extents;       // in extents_: starts along the axes 0 to `axis`, then lengths along those before it

    std::uint64_t size() const noexcept { return run * count; }
  };
  /// A place in a part: byte `within` of run `run`.
  struct Position {
    std::uint64_t run = 0, within = 0;
  };
  class Scatter;
  class Blocks;

  /// Returns where run `k` begins in the tensor.
  std::uint64_t place(const Part& part, std::uint64_t k) const noexcept;
  /// Returns the number of bytes from `at` on that are before byte `end` of the tensor.
  std::uint64_t bytes_before(const Part& part, Position at, std::uint64_t end) const noexcept;
  /// Copies the bytes from `at` on that belong to `out`, which begins at byte `first` of the tensor. Updates `at`, and
  /// `hasher` if it is not null.
  Status copy(const Part& part, Position& at, std::uint64_t first, std::span<std::byte> out, ReadContext& context,
              class Hasher* hasher) const;
  static Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
  static Status stream(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context);

  std::vector<Part> parts_;             // in the order of `begin`; none is empty
  std::vector<std::uint64_t> reach_;    // the greatest `end` of the parts up to each
  std::vector<std::uint64_t> strides_;  // of the tensor, in bytes
  std::vector<Extent> extents_;
};

}  // namespace stele::inline v0::detail
