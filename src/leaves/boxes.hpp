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

/// Checks that the boxes are inside the tensor, and that each of its elements is in exactly one of them. For n boxes
/// that cut k axes, sorts n * 2^k corners, whose memory it takes from `memory`. Errors: malformed, unsupported (more
/// than 8 axes are cut), limit.
STELE_EXPORT Status check_cover(std::span<const Box> boxes, std::span<const Extent> shape, IndexBudget& memory);

/// A leaf whose bytes are in the leaves of its boxes, each row-major. A stream reads it block by block and checks each
/// part as the part's own stream would. Takes memory for one block (leaves/blocks.hpp), independent of the size of the
/// parts.
class STELE_EXPORT JoinedBoxes {
 public:
  /// The boxes must have passed check_cover(), and the tensor's size in bytes must fit 64 bits. `element`: size of an
  /// element, not 0. `parts`: the leaves of the boxes, in the same order; the data that they point to must outlive this
  /// object.
  JoinedBoxes(std::span<const Extent> shape, std::size_t element, std::span<const Box> boxes,
              std::span<const Provider> parts);
  JoinedBoxes(const JoinedBoxes&) = delete;
  JoinedBoxes& operator=(const JoinedBoxes&) = delete;
  /// Returns the leaf. It refers to this object.
  Provider provider() const noexcept;
  /// Returns the size in bytes of an object for `parts` boxes.
  static std::uint64_t memory(std::size_t parts, std::size_t rank) noexcept;

 private:
  /// A box as runs of bytes that are also contiguous in the tensor: `count` runs of `run` bytes each.
  struct Part {
    Provider leaf;
    std::uint64_t run, count;
    std::uint64_t begin, end;  // offsets of the first and the last run in the tensor
    std::size_t axis;          // the innermost cut axis, or 0: a run consists of its rows and all of the later axes
    std::size_t extents;  // index in extents_: starts along axes 0 to `axis`, then lengths along axes before `axis`

    std::uint64_t size() const noexcept { return run * count; }
  };
  /// A position in a part: byte `within` of run `run`.
  struct Position {
    std::uint64_t run = 0, within = 0;
  };
  class Scatter;
  class Blocks;

  /// Returns the offset of run `k` in the tensor.
  std::uint64_t place(const Part& part, std::uint64_t k) const noexcept;
  /// Returns the number of bytes from `at` on that precede byte `end` of the tensor.
  std::uint64_t bytes_before(const Part& part, Position at, std::uint64_t end) const noexcept;
  /// Copies the bytes from `at` on that belong to `out`, which begins at byte `first` of the tensor. Updates `at`, and
  /// also `hasher` unless it is null.
  Status copy(const Part& part, Position& at, std::uint64_t first, std::span<std::byte> out, ReadContext& context,
              class Hasher* hasher) const;
  static Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
  static Status stream(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context);

  std::vector<Part> parts_;             // sorted by `begin`; not empty
  std::vector<std::uint64_t> reach_;    // for each part: the greatest `end` of the parts up to it
  std::vector<std::uint64_t> strides_;  // strides of the tensor, in bytes
  std::vector<Extent> extents_;
};

}  // namespace stele::inline v0::detail
