// Interprets declarations: what a node of a framework becomes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/engine/target.hpp"
#include "ir/rules/mapping.hpp"

namespace stele::inline v0::detail::ir {

/// A node of a framework's graph. Inputs and outputs that are not given have no name.
struct ModelNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, ExpressionValue> attributes;  // a tensor is a TensorName
};

/// Adds the operations that a declaration makes of a node. Errors: unsupported (a part of the node that the declaration
/// does not cover), missing, invalid_argument, malformed, those of Target::emit().
Status run(const Declaration& declaration, const ModelNode& node, Target& to);
/// Sets what a declaration tells of the outputs of a node, which are there already.
Status infer(const Declaration& declaration, const ModelNode& node, Target& to);

}  // namespace stele::inline v0::detail::ir
