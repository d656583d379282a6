// Builds TensorFlow graphs by hand: GraphDef, functions, tensors and SavedModel as bytes in strings.
#pragma once

#include <stele/bundle.hpp>
#include <stele/import.hpp>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/onnx_bytes.hpp"
#include "support/recorders.hpp"

namespace stele_test::tensorflow {

/// Dtypes, with TensorFlow's numbers.
enum : std::uint64_t {
  f32 = 1,
  f64 = 2,
  i32 = 3,
  u8 = 4,
  i16 = 5,
  i8 = 6,
  string = 7,
  c64 = 8,
  i64 = 9,
  boolean = 10,
  bf16 = 14,
  u16 = 17,
  f16 = 19,
  resource = 20,
  u32 = 22,
  u64 = 23
};

using Names = std::vector<std::string>;
using Ints = std::vector<std::int64_t>;

inline std::string fixed32(std::uint32_t bits) {
  std::string four;
  for (int shift = 0; shift < 32; shift += 8) four += static_cast<char>(bits >> shift);
  return four;
}
inline std::string fixed32(float value) { return fixed32(std::bit_cast<std::uint32_t>(value)); }
inline std::string fixed64(std::uint64_t bits) {
  return fixed32(static_cast<std::uint32_t>(bits)) + fixed32(static_cast<std::uint32_t>(bits >> 32));
}

/// Returns a TensorShapeProto; an extent of -1 is open.
inline std::string shape_of(const Ints& extents) {
  std::string dims;
  for (const std::int64_t n : extents) dims += bytes(2, n != 0 ? number(1, static_cast<std::uint64_t>(n)) : "");
  return dims;
}
/// Returns a TensorProto; `elements` contains the fields with elements.
inline std::string tensor(std::uint64_t dtype, const Ints& shape, const std::string& elements) {
  return number(1, dtype) + bytes(2, shape_of(shape)) + elements;
}
inline std::string content(const std::string& elements) { return bytes(4, elements); }
inline std::string tensor(const std::vector<float>& values) {
  std::string elements;
  for (const float value : values) elements += fixed32(value);
  return tensor(f32, {static_cast<std::int64_t>(values.size())}, content(elements));
}
inline std::string tensor(const Ints& values, std::uint64_t dtype = i32) {
  std::string elements;
  for (const std::int64_t value : values) elements += varint(static_cast<std::uint64_t>(value));
  return tensor(dtype, {static_cast<std::int64_t>(values.size())}, bytes(dtype == i64 ? 10 : 7, elements));
}
inline std::string scalar(std::int64_t value, std::uint64_t dtype = i32) {
  return tensor(dtype, {}, bytes(dtype == i64 ? 10 : 7, varint(static_cast<std::uint64_t>(value))));
}
inline std::string strings(const Names& values) {
  std::string elements;
  for (const std::string& value : values) elements += bytes(8, value);
  return tensor(string, {static_cast<std::int64_t>(values.size())}, elements);
}

/// Returns an attribute (field 5 of NodeDef) with fields of AttrValue.
inline std::string attribute(const std::string& name, const std::string& value) {
  return bytes(5, bytes(1, name) + bytes(2, value));
}
inline std::string integer(const std::string& name, std::int64_t value) {
  return attribute(name, number(3, static_cast<std::uint64_t>(value)));
}
inline std::string real(const std::string& name, float value) {
  return attribute(name, varint(4 << 3 | 5) + fixed32(value));
}
inline std::string flag(const std::string& name, bool value) { return attribute(name, number(5, value ? 1 : 0)); }
inline std::string text(const std::string& name, const std::string& value) { return attribute(name, bytes(2, value)); }
inline std::string type(const std::string& name, std::uint64_t dtype) { return attribute(name, number(6, dtype)); }
inline std::string extents(const std::string& name, const Ints& shape) {
  return attribute(name, bytes(7, shape_of(shape)));
}
inline std::string list(const std::string& name, const Ints& values) {
  std::string packed;
  for (const std::int64_t value : values) packed += varint(static_cast<std::uint64_t>(value));
  return attribute(name, bytes(1, bytes(3, packed)));
}
inline std::string types(const std::string& name, const std::vector<std::uint64_t>& dtypes) {
  std::string packed;
  for (const std::uint64_t dtype : dtypes) packed += varint(dtype);
  return attribute(name, bytes(1, bytes(6, packed)));
}
inline std::string function_name(const std::string& name, const std::string& function) {
  return attribute(name, bytes(10, bytes(1, function)));
}

/// Returns a node: in a graph (field 1 of GraphDef) or in a function (3 of FunctionDef).
inline std::string node_in(unsigned field, const std::string& name, const std::string& op, const Names& inputs,
                           const std::string& attributes = {}) {
  std::string all = bytes(1, name) + bytes(2, op);
  for (const std::string& input : inputs) all += bytes(3, input);
  return bytes(field, all + attributes);
}
inline std::string node(const std::string& name, const std::string& op, const Names& inputs,
                        const std::string& attributes = {}) {
  return node_in(1, name, op, inputs, attributes);
}
inline std::string inner(const std::string& name, const std::string& op, const Names& inputs,
                         const std::string& attributes = {}) {
  return node_in(3, name, op, inputs, attributes);
}
inline std::string placeholder(const std::string& name, const Ints& shape = {2}, std::uint64_t dtype = f32) {
  return node(name, "Placeholder", {}, type("dtype", dtype) + extents("shape", shape));
}
inline std::string value(const std::string& tensor_bytes) { return attribute("value", bytes(8, tensor_bytes)); }
inline std::string constant(const std::string& name, const std::string& tensor_bytes) {
  return node(name, "Const", {}, value(tensor_bytes));
}

/// Returns a library with one function (fields of GraphDef are merged). `returns`: outputs, and tensors of the body.
inline std::string function(const std::string& name, const Names& inputs,
                            const std::vector<std::pair<std::string, std::string>>& returns, const std::string& nodes) {
  std::string signature = bytes(1, name), ret;
  for (const std::string& input : inputs) signature += bytes(2, bytes(1, input));
  for (const auto& [output, from] : returns) {
    signature += bytes(3, bytes(1, output));
    ret += bytes(4, bytes(1, output) + bytes(2, from));
  }
  return bytes(2, bytes(1, bytes(1, signature) + nodes + ret));
}
inline std::string call(const std::string& name, const std::string& callee, const Names& inputs) {
  return node(name, "PartitionedCall", inputs, function_name("f", callee));
}
inline std::string inner_call(const std::string& name, const std::string& callee, const Names& inputs) {
  return inner(name, "PartitionedCall", inputs, function_name("f", callee));
}

using Tensors = std::vector<std::pair<std::string, std::string>>;  // keys and names
/// Returns a signature: field 5 of MetaGraphDef.
inline std::string signature(const std::string& key, const Tensors& inputs, const Tensors& outputs) {
  std::string all;
  for (const auto& [name, of] : inputs) all += bytes(1, bytes(1, name) + bytes(2, bytes(1, of)));
  for (const auto& [name, of] : outputs) all += bytes(2, bytes(1, name) + bytes(2, bytes(1, of)));
  return bytes(5, bytes(1, key) + bytes(2, all));
}
/// Returns a MetaGraphDef. `more`: signatures; the node that restores the variables.
inline std::string meta_graph(const std::string& graph, const std::string& more, const Names& tags = {"serve"}) {
  std::string info;
  for (const std::string& tag : tags) info += bytes(4, tag);
  return bytes(2, bytes(1, info) + bytes(2, graph) + more);
}
inline std::string restored_by(const std::string& node) { return bytes(3, bytes(3, node)); }
inline std::string saved_model(const std::string& meta_graphs) { return number(1, 1) + meta_graphs; }

inline stele::Result<stele::Checkpoint> import_of(const std::string& file, const stele::ImportOptions& options = {}) {
  const auto view = bytes_of(file);
  return stele::import_tensorflow(std::vector<std::byte>(view.begin(), view.end()), options);
}
/// Returns a line for each operation: "add(x y -> z)".
inline std::string operations(const stele::Checkpoint& model) {
  std::string lines;
  for (const stele::GraphOperation& operation : model.graph->operations) {
    lines += operation.op_name + '(';
    for (const std::string& input : operation.inputs) lines += input + ' ';
    lines += "->";
    for (const std::string& output : operation.outputs) lines += ' ' + output;
    lines += ")\n";
  }
  return lines;
}

}  // namespace stele_test::tensorflow
