// Converts a TensorFlow graph with functions to a single graph of the nodes that the outputs need.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/engine/model_graph.hpp"
#include "ir/tensorflow/constants.hpp"
#include "ir/tensorflow/graph_def.hpp"
#include "stele/import.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

/// Returns a variable's value, or nullopt if the value is not known here.
using FindVariable = std::function<Result<std::optional<Constants::Tensor>>(const std::string& node)>;

struct FlattenOptions {
  const MappingSet* mappings = nullptr;  // provide the names of operators' outputs
  std::vector<std::string> inputs{};     // placeholders that are inputs even if no node reads them
  std::vector<std::string> outputs{};    // "node" or "node:1"
  FindVariable variable{};
  std::function<std::shared_ptr<const void>()> owner{};  // returns the owner of the variables' tensors
  Report* report = nullptr;
};

/// Expands calls, resolves names that refer to other tensors, sorts the nodes so that each follows its inputs, and
/// omits nodes that no output needs. For a node that cannot be imported, Node::refused contains the reason. Errors:
/// malformed (a cycle, an input that does not exist), missing (an output), limit, and those of the constants.
Result<model::Graph> flatten(const GraphDef& graph, const SourcePtr& source, IndexBudget& memory,
                             const FlattenOptions& options);

}  // namespace stele::inline v0::detail::ir::tensorflow
