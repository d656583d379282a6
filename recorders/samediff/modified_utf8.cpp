// Converts between UTF-8 and Java's modified UTF-8.
#include "modified_utf8.hpp"

#include <cstddef>
#include <cstdint>

#include "json/json.hpp"

namespace stele::inline v0::detail::samediff {
namespace {

constexpr std::uint32_t kBad = 0xffffffff;

// Reads the UTF-16 unit at `at` and moves `at` past it; returns kBad for bytes that Java would not write.
std::uint32_t unit(std::string_view text, std::size_t& at) noexcept {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const std::uint32_t c = byte(0);
  std::uint32_t u = kBad;
  std::size_t n = 1;
  if (c != 0 && c < 0x80) {
    u = c;
  } else if ((c & 0xe0) == 0xc0 && follows(1)) {
    u = (c & 0x1f) << 6 | (byte(1) & 0x3f);
    n = 2;
    if (u < 0x80 && u != 0) u = kBad;  // only U+0000 may have a longer form than necessary
  } else if ((c & 0xf0) == 0xe0 && follows(1) && follows(2)) {
    u = (c & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    n = 3;
    if (u < 0x800) u = kBad;
  }
  at += n;
  return u;
}

void append_utf8(std::string& out, std::uint32_t c) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xe0 | c >> 12);
    } else {
      put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f));
    }
    put(0x80 | (c >> 6 & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

}  // namespace

std::optional<std::string> from_modified_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t c = unit(text, at);
    if (c == kBad || (c >= 0xdc00 && c < 0xe000)) return std::nullopt;
    if (c >= 0xd800 && c < 0xdc00) {
      const std::uint32_t low = at < text.size() ? unit(text, at) : kBad;
      if (low < 0xdc00 || low >= 0xe000) return std::nullopt;
      c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
    }
    append_utf8(out, c);
  }
  return out;
}

std::string to_modified_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
    };
    const std::uint32_t c = byte(0);
    const std::size_t n = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c == 0) {
      out += "\xc0\x80";
    } else if (!json::valid_utf8(text.substr(at, n))) {
      out += "\xef\xbf\xbd";  // one U+FFFD for each byte of invalid UTF-8
      ++at;
      continue;
    } else if (n < 4) {
      out += text.substr(at, n);
    } else {
      const std::uint32_t above =
          ((c & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f)) - 0x10000;
      append_utf8(out, 0xd800 + (above >> 10));
      append_utf8(out, 0xdc00 + (above & 0x3ff));
    }
    at += n;
  }
  return out;
}

}  // namespace stele::inline v0::detail::samediff
