// Hexadecimal digits of numbers and bytes.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace stele::inline v0::detail {

inline constexpr char hex_digits[] = "0123456789abcdef";

/// Returns the lowest `digits` digits of a number.
inline std::string hex(std::uint64_t number, unsigned digits = 16) {
  std::string text(digits, '0');
  for (unsigned i = digits; i-- > 0; number >>= 4) text[i] = hex_digits[number & 15U];
  return text;
}

/// Returns two digits for each byte.
inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes)
    text += {hex_digits[static_cast<unsigned>(b) >> 4], hex_digits[static_cast<unsigned>(b) & 15U]};
  return text;
}

/// Parses a text of exactly `digits` digits, of either case; returns nullopt for other texts, and for numbers of more
/// than 64 bits.
inline std::optional<std::uint64_t> from_hex(std::string_view text, std::size_t digits = 16) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, 16);  // accepts neither a sign nor a prefix
  if (text.size() != digits || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// Returns the percent-encoding of a byte (RFC 3986).
inline std::string percent_encoded(char byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  const auto b = static_cast<unsigned char>(byte);
  return {'%', digits[b >> 4], digits[b & 15U]};
}

}  // namespace stele::inline v0::detail
