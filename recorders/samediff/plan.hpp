// Plans a model's files before they are written: variables with their ids, arrays and optimizer state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "snapshot/paths.hpp"
#include "stele/checkpoint.hpp"
#include "stele/recorders/samediff.hpp"

namespace stele::inline v0::detail::samediff {

/// A variable of the graph, or a tensor that the graph does not have.
struct PlannedVariable {
  GraphVariable about;
  std::optional<std::uint32_t> leaf;
  std::optional<GraphArray> texts;
  std::int32_t id = 0, output = 0;
  std::vector<std::pair<std::string, LeafView>> states;
  bool scalar = false;  // an empty scalar

  bool has_array() const { return leaf || texts; }
};

class ModelPlan {
 public:
  /// Borrows the checkpoint. `inner`: plans a nested graph.
  ModelPlan(const Checkpoint& checkpoint, SameDiffContainer container, bool inner = false);
  ModelPlan(Checkpoint&& checkpoint, SameDiffContainer container, bool inner = false) = delete;
  /// Assigns arrays, states and ids. Call once, before all other functions. Errors: not_representable, duplicate,
  /// malformed, missing (a variable's tensor), invalid_argument.
  Status run();

  SameDiffContainer container() const { return container_; }
  bool inner() const { return inner_; }
  const Graph& graph() const;
  const std::optional<TrainingConfig>& training() const { return checkpoint_.training; }
  const std::vector<PlannedVariable>& variables() const { return variables_; }
  LeafView leaf(const PlannedVariable& variable) const { return parameters_.leaf(*variable.leaf); }
  /// Returns a variable's index in variables(). Errors: malformed (no such variable; `what` describes it).
  Result<std::size_t> index_of(const std::string& name, const char* what) const;
  /// Returns the ids of the graph's operations, in its order.
  const std::vector<std::int32_t>& operation_ids() const { return operation_ids_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Returns the indexes of all variables with arrays.
  std::vector<std::size_t> all_arrays() const;
  /// Returns the indexes of the variables with arrays for each file: as many as fit in `max_bytes`.
  std::vector<std::vector<std::size_t>> shards(std::uint64_t max_bytes) const;

 private:
  Status add_graph_variables();
  Status add_other_tensors();
  Status assign_ids();
  Status add_states();

  const Checkpoint& checkpoint_;
  Snapshot parameters_;
  LeafPaths paths_;
  SameDiffContainer container_;
  bool inner_;                                        // a nested graph, whose variables have no arrays
  std::map<std::string_view, std::uint32_t> unused_;  // leaves that are not assigned to a variable yet
  std::vector<PlannedVariable> variables_;
  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::vector<std::int32_t> operation_ids_;
  std::vector<Snapshot> states_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace stele::inline v0::detail::samediff
