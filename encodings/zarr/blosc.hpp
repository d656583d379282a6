// Frames of Blosc 1, the usual compression of zarr v2. Byte layout (little-endian; c-blosc, README_CHUNK_FORMAT.rst):
//
//  1. u8 version (2), u8 version of the inner codec, u8 flags (1 shuffled bytes, 2 stored, 4 shuffled bits, 16 blocks
//     are not split; the upper three bits: 0 blosclz, 1 LZ4, 2 snappy, 3 zlib, 4 zstd), u8 size of an element.
//  2. u32 decoded bytes, u32 bytes of a block, u32 bytes of the frame.
//  3. If stored: the bytes. Otherwise i32 offsets of the blocks, then the blocks: one part, or one for each byte of an
//     element, unless the block is the last and shorter, has fewer than 128 elements, or elements of more than 16
//     bytes. A part: i32 size, and the data, which are stored if they have the decoded size.
//
// Own code, with a decoder of LZ4 blocks; the other inner codecs are linked already (docs/dependencies.md).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "stele/result.hpp"

namespace stele::inline v0::detail::zarr {

/// Returns true if blosc_decode() supports the inner codec with this name in metadata.
constexpr bool is_blosc_codec(std::string_view name) noexcept {
  return name == "lz4" || name == "lz4hc" || name == "zlib" || name == "zstd";
}

/// Decodes an LZ4 block. Returns false unless it is valid and fills `out`.
bool lz4_block(std::span<const std::byte> in, std::span<std::byte> out);

/// Decodes a frame. Returns the number of bytes. Errors: malformed, unsupported (another inner codec).
Result<std::size_t> blosc_decode(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace stele::inline v0::detail::zarr
