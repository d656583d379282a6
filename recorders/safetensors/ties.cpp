// Ties that other programs name in the metadata: {"removed name": "kept name"} (safetensors.torch.save_model and
// huggingface_hub, which store tensors that share memory once).
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"

namespace stele::inline v0::detail::safetensors {
namespace {

/// Returns the position of a name, or the number of names.
std::size_t position(std::span<const std::string_view> names, std::string_view name) {
  const auto at = std::lower_bound(names.begin(), names.end(), name);
  return static_cast<std::size_t>(at != names.end() && *at == name ? at - names.begin()
                                                                   : static_cast<std::ptrdiff_t>(names.size()));
}

/// Returns true if the pair names a tie: the kept name is a tensor, and the removed one is neither a tensor nor the
/// beginning of a path of one. `names` are sorted.
bool is_tie(const std::pair<const std::string, std::string>& pair, std::span<const std::string_view> names) {
  const auto& [removed, kept] = pair;
  // `format` names a framework.
  if (removed.empty() || removed == "format" || position(names, kept) == names.size()) return false;
  if (position(names, removed) != names.size()) return false;
  const std::string below = removed + '.';
  const auto first = std::lower_bound(names.begin(), names.end(), std::string_view(below));
  return first == names.end() || !first->starts_with(below);
}

}  // namespace

Result<std::string> extras_of(const Snapshot& snapshot, const std::map<std::string, std::string>& metadata,
                              std::vector<std::string_view> names) {
  if (metadata.empty()) return flat_extras(snapshot);
  std::sort(names.begin(), names.end());
  std::map<std::string_view, std::string_view> pairs;
  for (const auto& pair : metadata) {
    if (is_tie(pair, names)) pairs.emplace(pair.first, pair.second);
  }
  STELE_TRY_ASSIGN(std::string all, flat_extras(snapshot));
  if (pairs.empty()) return all;
  // Aliases that the metadata name need no key, if nothing else does.
  auto rest = derived_data(snapshot);
  std::size_t named = 0;
  for (std::uint32_t i = 0; i < rest->nodes.size(); ++i) {
    Node& node = rest->nodes[i];
    if (node.kind != NodeKind::alias || rest->nodes[node.index].kind != NodeKind::tensor) continue;
    const auto pair = pairs.find(snapshot.path(i));
    if (pair == pairs.end() || pair->second != snapshot.path(node.index)) continue;
    node.kind = NodeKind::none;
    node.conditional = false;
    ++named;
  }
  STELE_TRY_ASSIGN(const std::string others,
                   flat_extras(Snapshot(std::shared_ptr<const SnapshotData>(std::move(rest)))));
  if (others.empty() && named == pairs.size()) return std::string();
  return all.empty() ? R"({"version":1})" : std::move(all);
}

Snapshot with_named_ties(const Snapshot& file) {
  const SnapshotData& from = *file.data();
  // Without an order, the file has the key `stele`, which lists its ties.
  if (from.metadata.empty() || !from.flat || from.name_order.size() + 1 != from.nodes.size()) return file;
  std::vector<std::string_view> names;
  names.reserve(from.name_order.size());
  for (const std::uint32_t i : from.name_order) names.emplace_back(from.nodes[i].name, from.nodes[i].name_size);
  std::unique_ptr<SnapshotData> data;
  for (const auto& pair : from.metadata) {
    if (!is_tie(pair, names)) continue;
    if (data == nullptr) data = derived_data(file);
    push_node(*data, NodeKind::alias, {pair.first}, true, 0, from.name_order[position(names, pair.second)]);
  }
  if (data == nullptr) return file;
  data->nodes[0].end = static_cast<std::uint32_t>(data->nodes.size());
  data->name_order.clear();
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail::safetensors
