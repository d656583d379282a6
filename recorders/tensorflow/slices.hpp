// Partitioned variables: a tensor whose elements are in several entries of a checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bundle.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace tensorflow {

/// Returns the key of the entry with the bytes of a slice of the variable `name`, in TensorFlow's ordered code: 0, the
/// name, the rank, and start and length for each axis.
std::string slice_key(std::string_view name, const Slice& slice);

/// Returns the variable's name from such a key, for messages.
std::string name_of_slice(std::string_view key);

/// Checks that the slices lie in the tensor, and that each of its elements is in exactly one. Takes memory for
/// `corners` of them: 2^n for each slice, if n axes are cut. Errors: malformed, unsupported (more than 8 axes are cut).
Status check_cover(std::span<const Slice> slices, std::span<const Extent> shape);
/// Returns the number of bytes that check_cover() takes.
std::uint64_t cover_memory(std::span<const Slice> slices, std::span<const Extent> shape);

/// The leaf of a partitioned variable. Its rows are read from the slices; it is checked when it is read as a whole.
class Joined {
 public:
  /// `parts`: the entries of the slices, in the same order. They outlive this object.
  Joined(const Entry& whole, std::span<const Entry* const> parts);
  static Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
  static Status stream(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context);

 private:
  /// A slice as runs of bytes that are contiguous in the tensor, too: `count` of them, each of `bytes`.
  struct Part {
    const Entry* entry;
    const Slice* slice;
    std::uint64_t bytes, count;
    std::size_t axis;  // the innermost axis that is cut, or 0: a run has its rows and all of the axes after it
  };
  /// Returns where run `k` begins in the tensor.
  std::uint64_t place(const Part& part, std::uint64_t k) const;
  /// Fills `out` with the bytes from `first` on. `crcs`: the checksums of the parts so far, which it updates.
  Status fill(std::uint64_t first, std::span<std::byte> out, ReadContext& context, std::uint32_t* crcs) const;

  std::vector<Part> parts_;
  std::vector<std::uint64_t> strides_;  // of the tensor, in bytes
};

inline constexpr LeafOps joined_ops{.read = Joined::read, .stream = Joined::stream};

}  // namespace tensorflow
}  // namespace detail
}  // namespace v0
}  // namespace stele
