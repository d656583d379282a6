// Parses names of tensors in TensorFlow's graphs, and classifies operators.
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

/// A reference to a tensor: "^node", "node", "node:1", "node:output:1".
struct Reference {
  bool control = false;
  std::string_view node, port;  // port: empty if not given
  std::uint64_t index = 0;
};
/// Parses a reference. Errors: malformed.
Result<Reference> reference_of(std::string_view text);

/// Returns the inputs of a graph whose dtypes DL4J supports.
std::vector<std::string> inputs_of(const GraphDef& graph);
/// Returns the tensors of a graph that no node reads.
std::vector<std::string> results_of(const GraphDef& graph);

inline constexpr std::array<std::string_view, 3> variables = {"VarHandleOp", "VariableV2", "Variable"};

/// Returns true if an operator changes or saves a variable.
bool assigns(std::string_view op) noexcept;

/// Finds nodes that run after a node that changes a variable: they do not read the variable's value in the file.
class Assignments {
 public:
  bool precede(const Body& body, const NodeDef& node, int depth = 0);

 private:
  std::unordered_map<const NodeDef*, bool> known_;
};

}  // namespace stele::inline v0::detail::ir::tensorflow
