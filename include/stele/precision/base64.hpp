// Base64 (RFC 4648, section 4): the standard alphabet, with padding; strict when it is read. SIMD inside.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// Characters of `bytes` bytes.
constexpr std::size_t base64_size(std::size_t bytes) noexcept { return (bytes + 2) / 3 * 4; }
/// `out` has room for base64_size(bytes.size()) characters.
STELE_EXPORT void base64_encode(std::span<const std::byte> bytes, char* out) noexcept;

/// The number of bytes that `text` stands for if it is base64 at all.
STELE_EXPORT std::size_t base64_decoded_size(std::string_view text) noexcept;
/// False, with `out` in any state: another length than whole blocks, a foreign character, missing or misplaced padding,
/// trailing bits that are not zero. `out` has room for base64_decoded_size(text) bytes, and no more is written.
STELE_EXPORT bool base64_decode(std::string_view text, std::byte* out) noexcept;

}  // namespace v0
}  // namespace stele
