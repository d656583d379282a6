// A framework's computation graph, as its reader passes it to the importer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::ir::model {

/// The tensor of an attribute, which is a leaf of the model's snapshot.
struct TensorValue {
  std::string leaf;
};

struct Attribute {
  std::string name;
  /// std::monostate: a kind that is not read (a graph, a sparse tensor, several tensors, a type).
  std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>,
               std::vector<std::string>, TensorValue>
      value{};
  std::string reference{};  // for a node in a function: the function's attribute that provides the value
};

struct Node {
  std::string name, op, domain, overload;
  std::vector<std::string> inputs, outputs;  // empty names: inputs and outputs that are not given
  std::vector<Attribute> attributes;
  std::string refused{};  // the reason why no rule can import the node; else empty
};

struct ValueInfo {
  std::string name;
  DType dtype = DType::none;  // none: not declared, or not a tensor
  bool has_shape = false;
  std::vector<std::int64_t> shape;  // -1: an open extent, with or without a name
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
  std::map<std::string, std::int64_t> opsets;  // by domain; the framework's own domain is ""
  std::vector<Node> nodes;
  std::vector<ValueInfo> inputs, outputs, values;
  std::vector<Function> functions;
  bool onnx = false;  // the operators without a domain are ONNX operators, which fold.hpp computes
};

}  // namespace stele::inline v0::detail::ir::model
