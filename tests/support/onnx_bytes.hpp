// Builds ONNX messages by hand.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "support/protobuf.hpp"

namespace stele_test {

/// Returns a field that is a string or a message.
inline std::string bytes(unsigned field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}

namespace onnx {

inline std::string attribute(const std::string& name, std::int64_t value) {
  return bytes(5, bytes(1, name) + number(3, static_cast<std::uint64_t>(value)) + number(20, 2));
}
inline std::string attribute(const std::string& name, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::string four;
  for (int shift = 0; shift < 32; shift += 8) four += static_cast<char>(bits >> shift);
  return bytes(5, bytes(1, name) + varint(2 << 3 | 5) + four + number(20, 1));
}
inline std::string attribute(const std::string& name, const std::string& value) {
  return bytes(5, bytes(1, name) + bytes(4, value) + number(20, 3));
}
inline std::string attribute(const std::string& name, const std::vector<std::int64_t>& values) {
  std::string list;
  for (const std::int64_t value : values) list += number(8, static_cast<std::uint64_t>(value));
  return bytes(5, bytes(1, name) + list + number(20, 7));
}
inline std::string attribute(const std::string& name, const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += bytes(9, value);
  return bytes(5, bytes(1, name) + list + number(20, 8));
}

/// Returns a node with the name "the OP", with further fields of NodeProto.
inline std::string node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
                        const std::string& more = {}) {
  std::string out;
  for (const std::string& input : inputs) out += bytes(1, input);
  return bytes(1, out + bytes(2, output) + bytes(3, "the " + op) + bytes(4, op) + more);
}
/// Returns an input (field 11 of GraphProto) or output (12) of 32-bit floats; an extent of -1 is open.
inline std::string floats(unsigned field, const std::string& name, const std::vector<std::int64_t>& shape) {
  std::string dims;
  for (const std::int64_t extent : shape) {
    dims += bytes(1, extent < 0 ? bytes(2, "open") : number(1, static_cast<std::uint64_t>(extent)));
  }
  return bytes(field, bytes(1, name) + bytes(2, bytes(1, number(1, 1) + bytes(2, dims))));
}
/// Returns an initializer: a list of 64-bit integers.
inline std::string integers(const std::string& name, const std::vector<std::int64_t>& values) {
  std::string elements;
  for (const std::int64_t value : values) elements += varint(static_cast<std::uint64_t>(value));
  return bytes(5, number(1, values.size()) + number(2, 7) + bytes(7, elements) + bytes(8, name));
}
inline std::string model(const std::string& graph, std::uint64_t opset = 17, const std::string& more = {}) {
  return number(1, 8) + bytes(7, graph) + bytes(8, bytes(1, "") + number(2, opset)) + more;
}

}  // namespace onnx
}  // namespace stele_test
