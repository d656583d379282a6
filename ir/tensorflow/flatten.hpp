// One graph without functions from a TensorFlow graph: what the wanted tensors need.
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

/// A variable's value; nullopt: it has none here.
using FindVariable = std::function<Result<std::optional<Constants::Tensor>>(const std::string& node)>;

struct FlattenOptions {
  const MappingSet* mappings = nullptr;  // the names of operators' outputs
  std::vector<std::string> inputs{};     // placeholders that are inputs even if nothing reads them
  std::vector<std::string> outputs{};    // "node" or "node:1"
  FindVariable variable{};
  std::function<std::shared_ptr<const void>()> owner{};  // of the variables' tensors
  Report* report = nullptr;
};

/// Expands calls, resolves names that stand for other tensors, sorts the nodes so that each follows its inputs, and
/// leaves out what no output needs. A node that cannot be imported has the reason in Node::refused. Errors: malformed
/// (a cycle, an input that does not exist), missing (an output), limit, those of the constants.
Result<model::Graph> flatten(const GraphDef& graph, const SourcePtr& source, IndexBudget& memory,
                             const FlattenOptions& options);

}  // namespace stele::inline v0::detail::ir::tensorflow
