// Interprets declarations, which specify the operations for a framework's node.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/engine/target.hpp"
#include "ir/rules/mapping.hpp"

namespace stele::inline v0::detail::ir {

/// A node of a framework's graph. The name of an input or output that is not given is empty.
struct ModelNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, ExpressionValue> attributes;  // a tensor attribute is a TensorName
};

/// Adds the operations that a declaration specifies for a node. Errors: unsupported (the declaration does not cover a
/// part of the node), missing, invalid_argument, malformed, and those of Target::emit().
Status run(const Declaration& declaration, const ModelNode& node, Target& to);
/// Sets the declared shapes and dtypes of a node's existing outputs.
Status infer(const Declaration& declaration, const ModelNode& node, Target& to);

}  // namespace stele::inline v0::detail::ir
