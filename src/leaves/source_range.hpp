// Streams and verifies leaves that a Source contains unchanged, for every file format.
#pragma once

#include <cstdint>
#include <span>

#include "base/hash.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// Operations of leaves without hash and padding: `at` is their Source, `number` their offset in it.
inline constexpr LeafOps source_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  return {static_cast<const Source*>(at), number};
}};

/// Passes the `size` bytes of the range to `sink`, and verifies them: small leaves through the context's window, large
/// leaves in pieces, directly in the sink's memory if the sink provides it.
Status stream_range(const SourceRange& range, std::uint64_t size, PieceSink& sink, ReadContext& context);

/// Returns the hash of a block of memory, computed with the hash function of `range`.
inline std::uint64_t hash_of(const SourceRange& range, const void* data, std::size_t size) {
  return range.crc != nullptr ? range.crc(0, data, size) : hash64(data, size);
}
/// Returns an error if `hash`, computed over all bytes of the range, differs from the stored hash.
STELE_EXPORT Status check_hash(const SourceRange& range, std::uint64_t hash);
/// Returns an error if `zeros`, the bytes after the range, are not zero.
STELE_EXPORT Status check_zeros(const SourceRange& range, std::uint64_t size, std::span<const std::byte> zeros);
/// Reads the bytes after the range, which has `size` bytes, and returns an error if they are not zero.
STELE_EXPORT Status check_padding(const SourceRange& range, std::uint64_t size);

}  // namespace stele::inline v0::detail
