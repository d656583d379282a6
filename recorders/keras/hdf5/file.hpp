// The structures of a file, read in linear time and bounded memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "messages.hpp"
#include "stele/bytes.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::hdf5 {

using View = std::span<const std::byte>;

inline std::string_view text_of(View bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline Error bad(const char* what, std::uint64_t offset) { return damaged(what).offset(offset); }

/// Returns the size of numbers of which the largest is `largest`, not 0, in B-trees of version 2 and fractal heaps.
constexpr std::size_t bytes_for(std::uint64_t largest) noexcept {
  return static_cast<std::size_t>(std::bit_width(largest) - 1) / 8 + 1;
}

/// A range of bytes of the file.
struct Range {
  std::uint64_t offset, size;
};

class File {
 public:
  File(const Source& source, IndexBudget& memory);

  std::uint64_t size() const { return source_.size(); }
  /// Takes memory for the file's objects. Errors: limit.
  Status take(std::uint64_t bytes);
  std::uint64_t memory_left() const { return memory_.left(); }
  /// Counts bytes of metadata that are read. Errors: malformed (more bytes than the file has without overlaps).
  Status count_read(std::uint64_t bytes, std::uint64_t offset);
  /// Reads metadata, into `buffer` unless the file is in memory.
  Result<View> read(std::uint64_t offset, std::uint64_t size, Bytes& buffer);
  /// Reads a structure that begins with a signature of four letters, which the result does not contain.
  Result<In> structure(std::uint64_t offset, std::uint64_t size, std::string_view letters, Bytes& buffer);

  /// Adds a range of elements.
  Status add_range(std::uint64_t offset, std::uint64_t size);
  /// Checks that no byte belongs to two datasets, so that a small file cannot contain many tensors.
  Status no_overlaps();

 private:
  const Source& source_;
  const View view_;
  IndexBudget& memory_;
  std::uint64_t work_;  // bytes of metadata that may still be read
  std::vector<Range> ranges_;
};

/// Returns the address of the root group's object header, in a file without a user block. Errors: unsupported,
/// truncated.
Result<std::uint64_t> read_superblock(File& file);

}  // namespace stele::inline v0::detail::hdf5
