// Leaves that lie as they are in a Source: reading and streaming them, for every file format.
#pragma once

#include <cstdint>

#include "hash.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Passes `size` bytes of `source` from `offset` on to `sink`: small leaves through the context's window, large ones in
/// pieces straight into the sink's memory where it has some. `hash`, where given, becomes the XXH3-64 of the bytes.
STELE_EXPORT Status stream_source(const Source& source, std::uint64_t offset, std::uint64_t size, PieceSink& sink,
                                  ReadContext& context, std::uint64_t* hash = nullptr);

}  // namespace detail
}  // namespace v0
}  // namespace stele
