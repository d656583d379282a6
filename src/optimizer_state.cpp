#include "stele/optimizer_state.hpp"

#include <algorithm>
#include <map>

#include "snapshot_internal.hpp"

namespace stele {
inline namespace v0 {

namespace {

/// The tensors alone, as they come back from a file.
Snapshot tensors_of(const Snapshot& from) {
  const auto is_value = [](const Node& node) { return node.kind == NodeKind::value; };
  if (std::none_of(from.nodes().begin(), from.nodes().end(), is_value)) return from;
  SnapshotBuilder builder;
  builder.set_flat();
  builder.begin(NodeKind::module, "");
  std::map<std::uint32_t, std::uint32_t> made;  // from the old number of a node
  for (std::uint32_t i = 0; i < from.nodes().size(); ++i) {
    const Node& node = from.nodes()[i];
    if (node.kind == NodeKind::tensor) {
      const LeafView leaf = from.leaf(node.index);
      made[i] = builder.tensor(builder.intern(from.path(i)), leaf.dtype(), leaf.shape(), leaf.byte_size(),
                               leaf.provider(), node.conditional);
    } else if (const auto target = made.find(node.index); node.kind == NodeKind::alias && target != made.end()) {
      builder.alias(builder.intern(from.path(i)), target->second, node.conditional);
    }
  }
  builder.end();
  builder.keep(from.data());
  return builder.finish();
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
  if (arrays == nullptr) return Error(Errc::not_found, "no optimizer state of this kind").path(std::string(key));
  const auto nodes = live.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::value) options.allow_missing.push_back(live.path(i));
  }
  return arrays;
}

}  // namespace v0
}  // namespace stele
