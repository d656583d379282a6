// Names of tensors in TensorFlow's graphs, and what kind of node an operator is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/operators/names.hpp"
#include "ir/tensorflow/graph_def.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

/// The place of a tensor: "^node", "node", "node:1", "node:output:1".
struct Reference {
  bool control = false;
  std::string_view node, port;  // port: empty if there is none
  std::uint64_t index = 0;
};
/// Errors: malformed.
Result<Reference> reference_of(std::string_view text);

/// Returns the inputs of a graph that DL4J can have.
std::vector<std::string> inputs_of(const GraphDef& graph);
/// Returns the tensors of a graph that nothing reads.
std::vector<std::string> results_of(const GraphDef& graph);

inline constexpr std::array<std::string_view, 3> variables = {"VarHandleOp", "VariableV2", "Variable"};

/// Tells whether an operator changes or saves a variable.
bool assigns(std::string_view op) noexcept;

/// Finds nodes that run after one that changes a variable: what they read is not the variable's value in the file.
class Assignments {
 public:
  bool precede(const Body& body, const NodeDef& node, int depth = 0);

 private:
  std::unordered_map<const NodeDef*, bool> known_;
};

}  // namespace stele::inline v0::detail::ir::tensorflow
