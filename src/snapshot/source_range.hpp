// Leaves that lie as they are in a Source: streaming and checking them, for every file format.
#pragma once

#include <cstdint>
#include <span>

#include "base/hash.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Passes the `size` bytes of the range on to `sink`, and checks them: small leaves through the context's window, large
/// ones in pieces straight into the sink's memory where it has some.
Status stream_range(const SourceRange& range, std::uint64_t size, PieceSink& sink, ReadContext& context);

/// The hash that `range` has one of, of a block of memory.
inline std::uint64_t hash_of(const SourceRange& range, const void* data, std::size_t size) {
  return range.crc != nullptr ? range.crc(0, data, size) : hash64(data, size);
}
/// The error where `hash`, of all bytes of the range, is not the one it should be.
STELE_EXPORT Status check_hash(const SourceRange& range, std::uint64_t hash);
/// The error where `zeros`, the bytes that follow the range, are not zero.
STELE_EXPORT Status check_zeros(const SourceRange& range, std::uint64_t size, std::span<const std::byte> zeros);

}  // namespace detail
}  // namespace v0
}  // namespace stele
