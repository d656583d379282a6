// PyTorch's names and layouts for models whose layers are written in another way. A rule says it layer type by layer
// type; nothing is guessed.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stele/schema.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace pytorch {

/// How the parameters of one of your classes stand in a PyTorch state_dict.
struct LayerRule {
  /// The class's name in records: its own without namespaces and template arguments, or what stele::type_name says.
  std::string type;
  /// Fields that have another name there: {field, name there}.
  std::vector<std::pair<std::string, std::string>> names{};
  /// Fields whose axes stand there in reverse order.
  std::vector<std::string> transposed{};
};

/// A linear layer whose `weight` is [in, out]; torch.nn.Linear has [out, in].
inline LayerRule linear_in_out(std::string type) { return {std::move(type), {}, {"weight"}}; }
/// A normalization layer with `gamma` and `beta`; torch.nn has `weight` and `bias`.
inline LayerRule norm_gamma_beta(std::string type) {
  return {std::move(type), {{"gamma", "weight"}, {"beta", "bias"}}, {}};
}

/// A PyTorch file with the names and layouts of a module type. What the rules do not speak of stays as it is. Errors:
/// as rename() and transpose(); limit (aliases of aliased containers).
STELE_EXPORT Result<Snapshot> adapt(const Snapshot& file, Schema schema, std::span<const LayerRule> rules);
template <class M>
Result<Snapshot> adapt(const Snapshot& file, const std::vector<LayerRule>& rules) {
  return adapt(file, schema_of<M>(), rules);
}

/// The opposite: a module's Snapshot (or one of a file that keeps type names) with PyTorch's names and layouts. Errors:
/// invalid_argument (a flat Snapshot has no types to go by), as rename() and transpose().
STELE_EXPORT Result<Snapshot> restore(const Snapshot& module, std::span<const LayerRule> rules);
inline Result<Snapshot> restore(const Snapshot& module, const std::vector<LayerRule>& rules) {
  return restore(module, std::span<const LayerRule>(rules));
}

}  // namespace pytorch
}  // namespace v0
}  // namespace stele
