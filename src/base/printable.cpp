// Escapes characters that control terminals.
#include "base/printable.hpp"

#include "base/hex.hpp"

namespace stele::inline v0::detail {

std::pair<std::size_t, unsigned> code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, first};
  const std::size_t length = first >= 0xf0 && first <= 0xf4  ? 4
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xc2 && first < 0xe0 ? 2
                                                             : 0;
  if (length == 0 || text.size() < length) return {0, 0};
  unsigned code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool short_form = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (short_form || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {0, 0};
  return {length, code};
}

bool is_obeyed(unsigned code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [length, code] = code_point(text);
    if (length == 0) {
      out += "\\x" + hex(static_cast<unsigned char>(text[0]), 2);
      text.remove_prefix(1);
      continue;
    }
    if (is_obeyed(code)) {
      out += code < 0x100 ? "\\x" + hex(code, 2) : "\\u" + hex(code, 4);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace stele::inline v0::detail
