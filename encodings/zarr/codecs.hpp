// The codecs of zarr that convert bytes to bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "stele/bytes.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::zarr {

/// A codec of a chunk's bytes.
struct Codec {
  enum Kind : std::uint8_t {
    gzip,  // also zlib: the data's header shows which
    zstd,
    crc32c,   // a checksum of four bytes after the data
    blosc,    // frames of Blosc 1
    lz4,      // of numcodecs: the decoded size in four bytes, and an LZ4 block
    shuffle,  // of numcodecs: byte 0 of all elements, then byte 1, ...
  };
  Kind kind;
  std::uint64_t width = 0;  // of `shuffle`: bytes of an element
};

/// Returns the kind of codec with this name in metadata; nullopt for an unknown name.
std::optional<Codec::Kind> codec_of(std::string_view name) noexcept;

/// Returns the maximum number of bytes that `bytes` bytes of this codec decode to.
std::uint64_t max_decoded(Codec codec, std::uint64_t bytes) noexcept;

/// Returns a bound of the size of `bytes` encoded bytes, with any codec's overhead.
constexpr std::uint64_t max_encoded(std::uint64_t bytes) noexcept {
  const std::uint64_t more = bytes / 16 + (std::uint64_t{1} << 16);
  return bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
}

/// Decodes `in`, to exactly `size` bytes or, if `at_most`, to fewer. Errors: malformed, checksum, out_of_memory.
Result<Bytes> decode(Codec codec, std::span<const std::byte> in, std::uint64_t size, bool at_most);

}  // namespace stele::inline v0::detail::zarr
