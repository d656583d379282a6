// Protocol buffers (https://protobuf.dev/programming-guides/encoding/) as bytes in strings.
#pragma once

#include <cstdint>
#include <string>

namespace stele_test {

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
/// Returns a field that is a number.
inline std::string number(unsigned field, std::uint64_t value) { return varint(field << 3) + varint(value); }

}  // namespace stele_test
