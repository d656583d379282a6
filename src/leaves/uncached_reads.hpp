// Large reads past the system's cache of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/os/os.hpp"
#include "stele/bytes.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// Reads parts of files that are not in the system's cache of files, and leaves them out of it. If that is not
/// possible, the caller reads in the usual way, which also reports errors. Not thread-safe.
class UncachedReads {
 public:
  /// Returns the first bytes of a range of `source`, at most `size`; their number is `size` or a multiple of 64. The
  /// bytes are in memory of `sink`, if it provides memory, or in memory that the next call overwrites. Returns nothing
  /// if the caller shall read them: they are in the cache, or the source is not a file that can be read so.
  std::span<const std::byte> read(const Source& source, std::uint64_t offset, std::uint64_t size, PieceSink& sink);

 private:
  void open(const Source& source);

  const Source* source_ = nullptr;
  os::File file_;
  std::uint64_t cached_from_ = 0, cached_to_ = 0;  // the last part that was found in the cache
  Bytes memory_;
};

}  // namespace stele::inline v0::detail
