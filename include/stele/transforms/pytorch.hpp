// PyTorch's names and axis orders for models whose layers differ from PyTorch's. A rule for each layer type declares
// the differences; the library does not guess.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stele/schema.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::pytorch {

/// The mapping of a class's parameters to the parameters of a PyTorch state_dict.
struct LayerRule {
  /// The class's name in records: the name without namespaces and template arguments, or its stele::attr::type_name.
  std::string type;
  /// Fields with another name in PyTorch: {field, PyTorch name}.
  std::vector<std::pair<std::string, std::string>> names{};
  /// Fields whose axes are reversed in PyTorch.
  std::vector<std::string> transposed{};
};

/// Returns the rule of a linear layer whose `weight` is [in, out]; torch.nn.Linear has [out, in].
inline LayerRule linear_in_out(std::string type) { return {std::move(type), {}, {"weight"}}; }
/// Returns the rule of a normalization layer with `gamma` and `beta`, which torch.nn calls `weight` and `bias`.
inline LayerRule norm_gamma_beta(std::string type) {
  return {std::move(type), {{"gamma", "weight"}, {"beta", "bias"}}, {}};
}

/// Converts a PyTorch file to the names and axis orders of a module type. Parameters without a rule are unchanged.
/// Errors: those of rename() and transpose(); limit (aliases of aliased containers).
STELE_EXPORT Result<Snapshot> adapt(const Snapshot& file, Schema schema, std::span<const LayerRule> rules);
template <class M>
Result<Snapshot> adapt(const Snapshot& file, const std::vector<LayerRule>& rules) {
  return adapt(file, schema_of<M>(), rules);
}

/// Converts a Snapshot of a module (or of a file that stores type names) to PyTorch's names and axis orders; the
/// inverse of adapt(). Errors: invalid_argument (a flat Snapshot, which has no types), those of rename() and
/// transpose().
STELE_EXPORT Result<Snapshot> restore(const Snapshot& module, std::span<const LayerRule> rules);
inline Result<Snapshot> restore(const Snapshot& module, const std::vector<LayerRule>& rules) {
  return restore(module, std::span<const LayerRule>(rules));
}

}  // namespace stele::inline v0::pytorch
