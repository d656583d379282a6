// The computation graph of an ONNX model, for its import. Field numbers: onnx.proto of onnx 1.23.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "stele/options.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace onnx {

/// The tensor of an attribute: a leaf of the model's snapshot.
struct TensorValue {
  std::string leaf;
};

struct Attribute {
  std::string name;
  /// std::monostate: of a kind that is not read (a graph, a sparse tensor, several tensors, a type).
  std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>,
               std::vector<std::string>, TensorValue>
      value{};
  std::string reference{};  // of a node in a function: the function's attribute that gives the value
};

struct Node {
  std::string name, op, domain, overload;
  std::vector<std::string> inputs, outputs;  // an empty name: not given
  std::vector<Attribute> attributes;
};

struct ValueInfo {
  std::string name;
  DType dtype = DType::none;  // none: not told, or no tensor
  bool has_shape = false;
  std::vector<std::int64_t> shape;  // -1: an extent that has a name, or none
};

struct Function {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs, attributes;  // attributes without defaults
  std::vector<Attribute> defaults;
  std::vector<Node> nodes;
  std::map<std::string, std::int64_t> opsets;
};

struct GraphModel {
  Snapshot tensors;                            // initializers, and the tensors of attributes
  std::map<std::string, std::int64_t> opsets;  // by domain; ONNX's own is ""
  std::vector<Node> nodes;
  std::vector<ValueInfo> inputs, outputs, values;
  std::vector<Function> functions;
};

/// Reads a model's graph. Errors: malformed, unsupported, limit, duplicate, those of the tensors.
Result<GraphModel> read_graph(SourcePtr source, const LoadOptions& options);

}  // namespace onnx
}  // namespace detail
}  // namespace v0
}  // namespace stele
