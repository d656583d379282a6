// Facts about DL4J's files, as stated in tests/formats/samediff/data/README.md. Also for programs without doctest.
#pragma once

#include <stele/dtype.hpp>
#include <stele/shape.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace stele_test {

/// Returns ND4J's name of a dtype.
inline const char* java_name(stele::DType dtype) {
  using stele::DType;
  switch (dtype) {
    case DType::boolean:
      return "BOOL";
    case DType::f16:
      return "HALF";
    case DType::bf16:
      return "BFLOAT16";
    case DType::f32:
      return "FLOAT";
    case DType::f64:
      return "DOUBLE";
    case DType::i8:
      return "BYTE";
    case DType::i16:
      return "SHORT";
    case DType::i32:
      return "INT";
    case DType::i64:
      return "LONG";
    case DType::u8:
      return "UBYTE";
    case DType::u16:
      return "UINT16";
    case DType::u32:
      return "UINT32";
    case DType::u64:
      return "UINT64";
    case DType::string:
      return "UTF8";
    default:
      return "UNKNOWN";
  }
}

inline std::string shape_text(std::span<const stele::Extent> shape) {
  std::string text;
  for (const stele::Extent e : shape) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text.empty() ? "scalar" : text;
}

inline std::string hex_of(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes)
    text += {digits[std::to_integer<unsigned>(b) >> 4], digits[std::to_integer<unsigned>(b) & 15U]};
  return text;
}
inline std::string hex_of(std::string_view text) { return hex_of(std::as_bytes(std::span(text))); }

}  // namespace stele_test
