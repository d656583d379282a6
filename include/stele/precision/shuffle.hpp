// Byte shuffle, which makes numbers more compressible: the first byte of every element, then the second byte of every
// element, …
#pragma once

#include <cstddef>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// Shuffles `count` elements of `width` bytes (2, 4 or 8; other widths are copied unchanged). `from` and `to` must not
/// overlap.
STELE_EXPORT void shuffle_bytes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept;
/// Reverses shuffle_bytes.
STELE_EXPORT void unshuffle_bytes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept;

}  // namespace stele::inline v0
