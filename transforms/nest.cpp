// Converts flat names to a tree.
#include <algorithm>
#include <map>

#include "module/walk.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"
#include "snapshot/tree.hpp"
#include "stele/transform.hpp"

namespace stele::inline v0 {

using detail::Item;
using detail::Items;

namespace {

struct Branch {
  std::string name;
  const Item* item = nullptr;  // a leaf, an alias, or a container's entry
  std::vector<std::size_t> children;
  std::uint32_t node = no_index;  // number in the result
  bool open = false;
};

class Nester {
 public:
  explicit Nester(const Items& items) : items_(items), branches_(1) {}

  Result<Snapshot> run() {
    for (const Item& item : items_.list) STELE_TRY(plant(item));
    STELE_TRY(emit(0, SnapshotBuilder::Name("")));
    for (const auto& keeper : items_.keepers) to_.keep(keeper);
    if (items_.in_order) to_.set_in_order();
    to_.set_metadata(items_.metadata);
    to_.data().properties = items_.properties;
    to_.data().left_out = items_.left_out;
    to_.set_unknown_kinds({.all = true});
    return to_.finish();
  }

 private:
  /// Returns the branch of a path. Creates the branch if `make` is true.
  Result<std::size_t> branch(std::string_view path, bool make) {
    std::size_t at = 0;
    const std::string whole(path);
    std::string name;
    std::string_view raw;
    int depth = 0;
    while (!path.empty()) {
      if (!detail::first_segment(path, raw, name) || path.size() == raw.size() + 1) {
        return Error(Errc::malformed, "the name is not a valid path").path(whole);
      }
      if (++depth > detail::max_depth)
        return Error(Errc::limit, "the path has too many segments")
            .path(whole)
            .expected("at most " + std::to_string(detail::max_depth));
      path.remove_prefix(std::min(path.size(), raw.size() + 1));
      const auto [child, fresh] = names_.try_emplace({at, name}, branches_.size());
      if (fresh) {
        if (!make) {
          names_.erase(child);
          return Error(Errc::malformed, "the target of a tie does not exist").path(whole);
        }
        branches_.push_back({name, nullptr, {}});
        branches_[at].children.push_back(child->second);
      }
      at = child->second;
    }
    return at;
  }

  Status plant(const Item& item) {
    STELE_TRY_ASSIGN(const std::size_t at, branch(item.path, true));
    branches_[at].item = &item;
    return {};
  }

  NodeKind kind_of(const Branch& b) const {
    return b.item != nullptr && !b.item->target ? b.item->from->nodes[b.item->node].kind : NodeKind::module;
  }

  Status emit(std::size_t number, SnapshotBuilder::Name name) {
    const Item* item = branches_[number].item;
    if (item != nullptr && item->target) {
      STELE_TRY_ASSIGN(const std::size_t target, branch(*item->target, false));
      Branch& b = branches_[target];
      if (b.open) return Error(Errc::malformed, "two ties contain each other").path(item->path);
      if (b.node == no_index) return emit(target, name);  // the first name in the tree owns the tensor
      to_.alias(name, b.node, true);
      return {};
    }
    Branch& b = branches_[number];
    if (b.node != no_index) {
      to_.alias(name, b.node, true);
      return {};
    }
    b.node = static_cast<std::uint32_t>(to_.data().nodes.size());
    const NodeKind kind = kind_of(b);
    if (kind == NodeKind::tensor || kind == NodeKind::value || kind == NodeKind::none) {
      if (!b.children.empty()) {
        return Error(Errc::malformed, "names exist below a tensor or value").path(item->path);
      }
      leaf(*item, kind, name);
      return {};
    }
    return container(number, kind, name);
  }

  void leaf(const Item& item, NodeKind kind, SnapshotBuilder::Name name) {
    const Node& node = item.from->nodes[item.node];
    if (kind == NodeKind::none) {
      to_.none(name, true);
    } else if (kind == NodeKind::value) {
      to_.value(name, item.from->values[node.index], node.conditional);
    } else {
      detail::add_tensor(to_, name, item);
    }
  }

  Status container(std::size_t number, NodeKind kind, SnapshotBuilder::Name name) {
    // If all names are numbers, the container is a list in their order.
    std::vector<std::pair<std::size_t, std::size_t>> children;
    bool list = true;
    for (const std::size_t child : branches_[number].children) {
      std::size_t element = 0;
      list = list && detail::parse_index(branches_[child].name, element) && element < no_index;
      children.emplace_back(element, child);
    }
    list = list && !children.empty();
    if (list) std::sort(children.begin(), children.end());
    const Item* item = branches_[number].item;
    std::uint32_t version = 0;
    if (item != nullptr) {
      const Node& node = item->from->nodes[item->node];
      version = node.index != no_index ? item->from->types[node.index].version : 0;
    }
    to_.begin(list ? NodeKind::list : kind, name, item != nullptr && item->from->nodes[item->node].conditional, "",
              version);
    branches_[number].open = true;
    for (const auto& [element, child] : children) {
      STELE_TRY(emit(child, list ? SnapshotBuilder::Name::element(element)
                                 : SnapshotBuilder::Name(to_.intern(branches_[child].name))));
    }
    branches_[number].open = false;
    to_.end();
    return {};
  }

  const Items& items_;
  SnapshotBuilder to_;
  std::vector<Branch> branches_;  // the root has number 0
  std::map<std::pair<std::size_t, std::string>, std::size_t> names_;
};

}  // namespace

Result<Snapshot> nest(const Snapshot& snapshot) {
  if (!snapshot.flat()) return snapshot;
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const Items items, Items::of(snapshot));
    return Nester(items).run();
  });
}

}  // namespace stele::inline v0
