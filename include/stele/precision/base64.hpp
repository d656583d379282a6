// Base64 (RFC 4648, section 4): the standard alphabet with padding; strict when decoding. Uses SIMD.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// Returns the number of characters for `bytes` bytes.
constexpr std::size_t base64_size(std::size_t bytes) noexcept { return (bytes + 2) / 3 * 4; }
/// Encodes `bytes`; `out` must have space for base64_size(bytes.size()) characters.
STELE_EXPORT void base64_encode(std::span<const std::byte> bytes, char* out) noexcept;

/// Returns the number of bytes that `text` decodes to if it is valid base64.
STELE_EXPORT std::size_t base64_decoded_size(std::string_view text) noexcept;
/// Decodes `text`. Returns false, and leaves `out` unspecified, for incomplete blocks, an invalid character, missing or
/// misplaced padding, or nonzero trailing bits. `out` must have space for base64_decoded_size(text) bytes; the function
/// does not write more.
STELE_EXPORT bool base64_decode(std::string_view text, std::byte* out) noexcept;

}  // namespace stele::inline v0
