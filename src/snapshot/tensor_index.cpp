#include "snapshot/tensor_index.hpp"

#include <algorithm>
#include <utility>

#include "base/name_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/unreadable.hpp"

namespace stele::inline v0::detail {
namespace {

static_assert(sizeof(Node) + sizeof(LeafData) + 3 * sizeof(std::uint32_t) <= leaf_memory);

std::string_view name_of(const Node& node) { return {node.name, node.name_size}; }

}  // namespace

std::vector<TensorEntry> entries_of(const Snapshot& snapshot, const LeafPaths& paths) {
  std::vector<TensorEntry> entries;
  entries.reserve(snapshot.leaf_count());
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    entries.push_back({paths[i], leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider()});
  }
  return entries;
}

Status add_entry(SnapshotBuilder& to, const TensorEntry& entry, IndexBudget& memory) {
  // Growing arrays temporarily need three times their content.
  const std::uint64_t pooled = entry.name.size() + entry.unreadable.size() + sizeof(Extent) * entry.shape.size();
  if (!memory.take(sizeof(Node) + sizeof(LeafData) + 32 + 3 * pooled +
                   (entry.unreadable.empty() ? 0 : unreadable_memory))) {
    return index_error("the tensors' names and shapes need more memory than the file's size allows");
  }
  const std::string_view name = to.intern(entry.name);
  if (entry.unreadable.empty()) {
    to.tensor(name, entry.dtype, entry.shape, entry.bytes, entry.provider);
  } else {
    add_unreadable(to, name, entry.unreadable, entry.bytes, entry.provider);
  }
  return {};
}

Status sort_names(SnapshotBuilder& to, std::vector<RepeatedName>* repeated) {
  const auto nodes = to.nodes();
  auto order = order_by_name(static_cast<std::uint32_t>(nodes.size() - 1),  // 0 is the root
                             [&](std::uint32_t i) { return name_of(nodes[i + 1]); });
  std::uint32_t first = no_index;
  std::size_t earlier = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++order[i];
    earlier = i != 0 && name_of(nodes[order[i]]) == name_of(nodes[order[i - 1]]) ? earlier + 1 : 0;
    if (earlier == 0) continue;
    if (first == no_index) first = order[i - 1];
    if (repeated == nullptr) break;
    repeated->push_back({order[i], earlier});
  }
  if (first != no_index) {
    Error error =
        Error(Errc::duplicate, "two entries of the file have the same name").path(std::string(name_of(nodes[first])));
    if (nodes[first].kind != NodeKind::tensor) return error;
    const Provider& of = to.data().leaves[nodes[first].index].provider;
    return of.ops->locate != nullptr ? std::move(error).offset(of.ops->locate(of.at, of.number).offset) : error;
  }
  to.set_name_order(std::move(order));
  return {};
}

Status add_extras(SnapshotBuilder& to, std::string_view extras, IndexBudget& memory) {
  const std::vector<std::uint32_t> order = std::exchange(to.data().name_order, {});  // lacks the nodes added below
  const auto find = [&](std::string_view name) {
    const auto at = std::lower_bound(order.begin(), order.end(), name, [&](std::uint32_t node, std::string_view n) {
      return name_of(to.nodes()[node]) < n;
    });
    return at != order.end() && name_of(to.nodes()[*at]) == name ? *at : no_index;
  };
  return add_flat_extras(extras, to, find, memory);
}

Status finish_names(SnapshotBuilder& to, std::map<std::string, std::string> metadata, IndexBudget& memory) {
  STELE_TRY(sort_names(to));
  if (const auto extras = metadata.find(std::string(flat_key));
      extras != metadata.end() && is_flat_text(extras->second)) {
    STELE_TRY(add_extras(to, extras->second, memory));
    metadata.erase(extras);
  }
  to.set_metadata(std::move(metadata));
  return {};
}

}  // namespace stele::inline v0::detail
