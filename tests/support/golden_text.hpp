// The format of shapes and bytes in the listings of golden files from other programs.
#pragma once

#include <stele/shape.hpp>

#include <span>
#include <string>
#include <string_view>

namespace stele_test {

/// Returns the bytes in hexadecimal digits, or "-" if there are none.
inline std::string hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    text += {digits[b >> 4], digits[b & 15]};
  }
  return text.empty() ? "-" : text;
}

/// Returns "2x3"; `scalar` if there are no extents.
inline std::string shape_text(std::span<const stele::Extent> shape, const char* scalar) {
  std::string text;
  for (const stele::Extent e : shape) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text.empty() ? scalar : text;
}

}  // namespace stele_test
