// Datasets in chunks, which filters may have changed, and datasets without stored bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.hpp"
#include "messages.hpp"
#include "stele/bytes.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::hdf5 {

/// The stored bytes of a chunk.
struct Chunk {
  std::uint64_t number = 0;  // row-major, in the grid of chunks
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
  std::uint32_t mask = 0;  // bit i: filter i was not applied
};

/// Returns true if the reader can undo the filter.
bool has_filter(std::uint16_t id) noexcept;
/// Returns how many bytes one byte of a filter's data can become.
std::uint64_t max_ratio(std::uint16_t filter) noexcept;
inline constexpr std::uint16_t deflate_filter = 1;
inline constexpr std::size_t max_axes = 32;

/// A leaf whose elements are in chunks. Decodes all chunks with the same index on the first axis at once, and keeps
/// them until other chunks are read: reading in order decodes each chunk once.
class ChunkedLeaf {
 public:
  SourcePtr source;
  std::vector<Extent> shape;          // at least one axis
  std::vector<std::uint64_t> extent;  // extent of a chunk, not 0
  std::vector<std::uint64_t> grid;    // number of chunks along each axis
  std::uint64_t element = 0, bytes = 0, chunk_bytes = 0;
  std::vector<Filter> filters;
  bool plain_edges = false;     // partial edge chunks are not filtered
  std::vector<std::byte> fill;  // an element, or empty: zeros
  std::vector<Chunk> chunks;    // by number

  Provider provider() const noexcept;
  /// Returns true if filters were applied to the chunk.
  bool filtered(std::uint64_t number) const noexcept;

 private:
  static Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
  Status load(std::uint64_t band) const;
  Result<Bytes> decode(const Chunk& chunk) const;
  void scatter(std::uint64_t number, std::span<const std::byte> from, std::span<std::byte> to) const;

  mutable Mutex mutex_;
  mutable Bytes band_;
  mutable std::uint64_t loaded_ = undefined;
};

}  // namespace stele::inline v0::detail::hdf5
