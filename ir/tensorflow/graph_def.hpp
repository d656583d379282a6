// TensorFlow's graphs as stored in files: a GraphDef, or a SavedModel that contains one. Field numbers:
// tensorflow/core/framework/{graph,node_def,attr_value,function,op_def}.proto and
// tensorflow/core/protobuf/{saved_model,meta_graph,saver}.proto of TensorFlow 2.21.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/limits.hpp"
#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

/// The position of a TensorProto in the file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};
/// A dtype, as TensorFlow's number.
struct TypeCode {
  std::uint64_t code = 0;
};
struct FunctionName {
  std::string name;
};

/// std::monostate: a kind that is not read (a list of tensors or functions), or a shape of unknown rank. Bools are
/// stored as integers. A shape is a list of extents, in which unknown_extent is an open extent.
using AttributeValue = std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
                                    std::vector<float>, std::vector<std::string>, TypeCode, FunctionName, ByteRange>;

struct NodeDef {
  std::string name, op;
  /// "node" or "node:1"; in functions "argument" or "node:output:1". "^node": the node only has to run before this
  /// node.
  std::vector<std::string> inputs;
  std::vector<std::pair<std::string, AttributeValue>> attributes;

  const AttributeValue* find(std::string_view attribute) const noexcept;
};

/// The nodes of a graph or of a function's body.
struct Body {
  std::string name;                            // name of the function; empty for the graph
  std::vector<std::string> inputs, outputs;    // parameters and results of the function
  std::map<std::string, std::string> returns;  // for each output, the tensor in the body
  std::vector<NodeDef> nodes;
  std::unordered_map<std::string_view, std::uint32_t> places{};     // indices of the nodes, by name
  std::unordered_map<std::string_view, std::uint32_t> arguments{};  // indices of the inputs, by name
};

/// Names of tensors, by key.
struct Signature {
  std::map<std::string, std::string> inputs, outputs;
};

struct GraphDef {
  Body main;
  std::vector<Body> functions;
  bool saved_model = false;
  std::map<std::string, Signature> signatures;
  std::string restore;  // the node that assigns the variables of a SavedModel
};

/// Reads the structure of a GraphDef or a SavedModel. If a SavedModel has several graphs, reads the graph with the tag
/// "serve", or the first. Tensors stay in the source. Errors: malformed, duplicate, limit, io.
Result<GraphDef> read_graph_def(const SourcePtr& source, IndexBudget& memory);

/// Returns ONNX's number for a TensorFlow dtype, or 0 if ONNX or stele does not have the dtype.
std::int64_t onnx_code(TypeCode type) noexcept;

}  // namespace stele::inline v0::detail::ir::tensorflow
