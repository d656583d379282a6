// Byte shuffle, which makes numbers compress: the first byte of every element, then the second of every element, …
#pragma once

#include <cstddef>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// `count` elements of `width` bytes (2, 4 or 8; any other is copied as it is). `from` and `to` do not overlap.
STELE_EXPORT void shuffle_bytes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept;
/// Takes it back.
STELE_EXPORT void unshuffle_bytes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept;

}  // namespace v0
}  // namespace stele
