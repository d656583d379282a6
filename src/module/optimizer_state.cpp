#include "stele/optimizer_state.hpp"

#include <algorithm>

#include "snapshot/items.hpp"

namespace stele::inline v0 {

namespace {

/// Returns the state without values, in the form that a file would give: a flat Snapshot with ids, annotations and
/// ties.
Snapshot tensors_of(const Snapshot& from) {
  const auto is_value = [](const Node& node) { return node.kind == NodeKind::value; };
  if (std::none_of(from.nodes().begin(), from.nodes().end(), is_value)) return from;
  auto items = detail::Items::of(from);
  if (!items) return from;
  std::erase_if(items->list, [&](const detail::Item& item) {
    const Node& node = item.from->nodes[item.node];
    return is_value(node.kind == NodeKind::alias ? item.from->nodes[node.index] : node);
  });
  auto built = items->build();
  return built ? *std::move(built) : from;  // fails if two tensors have the same path; saving then returns the error
}

/// Collects the paths of all values at or below node `node` with path `path`, under each of their names.
void add_values(const Snapshot& live, std::uint32_t node, const std::string& path, std::vector<std::string>& paths) {
  const auto nodes = live.nodes();
  if (nodes[node].kind == NodeKind::alias) return add_values(live, nodes[node].index, path, paths);
  if (nodes[node].kind == NodeKind::value) return paths.push_back(path);
  const std::string own = live.path(node);
  for (std::uint32_t k = node + 1; k < nodes[node].end; k = nodes[k].end) {
    add_values(live, k, path + live.path(k).substr(own.size()), paths);
  }
}

}  // namespace

void OptimizerState::set_snapshot(std::string key, Snapshot arrays) {
  arrays = tensors_of(arrays);
  const auto same = [&](const auto& kind) { return kind.first == key; };
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), same);
  if (found != kinds_.end()) {
    found->second = std::move(arrays);
  } else {
    kinds_.emplace_back(std::move(key), std::move(arrays));
  }
}

const Snapshot* OptimizerState::find(std::string_view key) const noexcept {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& kind) { return kind.first == key; });
  return found != kinds_.end() ? &found->second : nullptr;
}

Result<const Snapshot*> OptimizerState::prepare(std::string_view key, const Snapshot& live,
                                                LoadOptions& options) const {
  const Snapshot* arrays = find(key);
  if (arrays == nullptr)
    return Error(Errc::not_found, "there is no optimizer state of this kind").path(std::string(key));
  add_values(live, 0, "", options.allow_missing);
  return arrays;
}

}  // namespace stele::inline v0
