// A framework's computation graph, as its reader gives it to the importer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::ir::model {

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
  std::string refused{};  // why the node cannot be imported, whatever the rules are
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

struct Graph {
  Snapshot tensors;                            // initializers, and the tensors of attributes
  std::map<std::string, std::int64_t> opsets;  // by domain; the framework's own is ""
  std::vector<Node> nodes;
  std::vector<ValueInfo> inputs, outputs, values;
  std::vector<Function> functions;
  bool onnx = false;  // the operators without a domain are ONNX's: fold.hpp computes them
};

}  // namespace stele::inline v0::detail::ir::model
