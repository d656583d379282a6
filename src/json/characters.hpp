// Scans characters of JSON strings, for the reader and the writer.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace stele::inline v0::detail::json {

inline constexpr std::uint64_t kOnes = 0x0101010101010101u;
inline constexpr std::uint64_t kHighs = 0x8080808080808080u;
inline constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t/",
                                  kLetters = "\"\\bfnrt/";  // the slash is read, but never written

// Returns the first byte from `p` on that a JSON string must escape: a quote, a backslash, a control character and, if
// `Ascii`, any byte beyond ASCII. Compares eight bytes at a time: a byte's high bit marks a hit. Borrows make false
// marks only above a true one, so the lowest mark is exact.
template <bool Ascii>
const char* find_special(const char* p, const char* end) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    for (; end - p >= 8; p += 8) {
      std::uint64_t x;
      std::memcpy(&x, p, 8);
      const std::uint64_t quote = (x ^ (kOnes * '"')) - kOnes, slash = (x ^ (kOnes * '\\')) - kOnes;
      const std::uint64_t small = x - kOnes * 0x20;
      const std::uint64_t hits = (Ascii ? (quote | slash | small | x) : ((quote | slash | small) & ~x)) & kHighs;
      if (hits != 0) return p + (std::countr_zero(hits) >> 3);
    }
  }
  for (; p != end; ++p) {
    const auto c = static_cast<unsigned char>(*p);
    if (c == '"' || c == '\\' || c < 0x20 || (Ascii && c >= 0x80)) break;
  }
  return p;
}
}  // namespace stele::inline v0::detail::json
