#include "snapshot/items.hpp"

#include <algorithm>
#include <set>

#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail {

namespace {

/// Returns true if a node is in the list: all nodes except containers that are shown by the names below them.
bool is_item(const SnapshotData& data, std::uint32_t i) {
  const Node& node = data.nodes[i];
  if (is_container(node.kind)) {
    return needs_empty_entry(data, i) || (node.index != no_index && data.types[node.index].version != 0);
  }
  return node.kind != NodeKind::none || needs_empty_entry(data, i);
}

/// Bounds the sum of the lengths of all paths in a list.
class PathBytes {
 public:
  PathBytes(std::size_t nodes, std::uint64_t names) : limit_((std::uint64_t{16} << 20) + 256 * nodes + 2 * names) {}
  Status add(const Item& item) {
    bytes_ += item.path.size() + (item.target ? item.target->size() : 0);
    if (bytes_ <= limit_) return {};
    return Error(Errc::limit, "the names of the snapshot are too long together")
        .path(item.path)
        .expected("at most " + std::to_string(limit_) + " bytes in all paths");
  }

 private:
  std::uint64_t limit_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::uint32_t add_tensor(SnapshotBuilder& to, SnapshotBuilder::Name name, const Item& item) {
  const LeafView leaf = item.leaf();
  const bool conditional = item.from->nodes[item.node].conditional;
  if (const auto& d = item.derived) {  // id and annotations come from the tensor that it replaces
    return to.tensor(name, d->dtype, d->shape.span(), d->bytes, d->provider, conditional);
  }
  return add_leaf(to, name, leaf, conditional);
}

Result<Items> Items::of(const Snapshot& snapshot) {
  const SnapshotData& data = *snapshot.data();
  STELE_TRY(not_a_delta(data));  // with changed names or fewer tensors, a delta would fit no base
  Items items;
  items.keepers = {snapshot.data()};
  items.in_order = snapshot.in_order();
  items.metadata = snapshot.metadata();
  items.properties = data.properties;
  items.left_out = data.left_out;
  items.beside = data.beside;
  std::uint64_t names = 0;
  for (const Node& node : data.nodes) names += node.name != nullptr ? node.name_size : 0;
  PathBytes bytes(data.nodes.size(), names);
  items.list.reserve(data.nodes.size());
  std::vector<std::pair<std::uint32_t, std::size_t>> open;  // end of a container, length of its parent's path
  std::string path;
  const std::vector<bool> guessed = guessed_empties(data);
  for (std::uint32_t i = 0; i < data.nodes.size(); ++i) {
    const Node& node = data.nodes[i];
    for (; !open.empty() && open.back().first <= i; open.pop_back()) path.resize(open.back().second);
    const std::size_t parent = path.size();
    if (data.flat && i != 0) {
      path.assign(node.name, node.name_size);
    } else if (i != 0) {
      if (node.parent != 0) path += '.';
      append_node_segment(path, node);
    }
    if (is_item(data, i) || (!guessed.empty() && guessed[i])) {
      Item& item = items.list.emplace_back();
      item.path = path;
      item.from = &data;
      item.node = i;
      if (node.kind == NodeKind::alias) item.target = snapshot.path(node.index);
      STELE_TRY(bytes.add(item));
    }
    if (node.end > i + 1) {
      open.emplace_back(node.end, parent);
    } else {
      path.resize(parent);
    }
  }
  return items;
}

Item* Items::find_tensor(std::string_view path) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Item& i) { return i.path == path && i.is_tensor(); });
  return found != list.end() ? &*found : nullptr;
}

void Items::keep(const Items& other) {
  keepers.insert(keepers.end(), other.keepers.begin(), other.keepers.end());
  in_order = in_order || other.in_order;
  add_left_out(left_out, other.left_out);
  if (beside == nullptr) beside = other.beside;
}

namespace {

/// Returns the total capacity of the snapshots; 0 if each equals the sum of its leaves.
std::uint64_t capacity_of(const std::vector<Item>& list) {
  std::set<const SnapshotData*> all;
  for (const Item& item : list) {
    if (item.from != nullptr) all.insert(item.from);
  }
  const auto has_capacity = [](const SnapshotData* data) { return data->capacity != 0; };
  if (std::none_of(all.begin(), all.end(), has_capacity)) return 0;
  std::uint64_t sum = 0;
  for (const SnapshotData* data : all) sum = checked_add(sum, held_bytes(*data)).value_or(UINT64_MAX);
  return sum;
}

}  // namespace

Result<Snapshot> Items::build() const {
  const ItemIndex index(list);
  if (const auto same = index.duplicate()) {
    const auto origin = [&](std::size_t i) {
      return list[i].from != nullptr && !list[i].target ? node_path(*list[i].from, list[i].node) : list[i].path;
    };
    return Error(Errc::duplicate, "two entries would have the same name")
        .path(list[same->first].path)
        .found(origin(same->first) + " and " + origin(same->second));
  }
  SnapshotBuilder to;
  to.set_flat();
  std::size_t leaves = 0;
  for (const Item& item : list) leaves += item.is_tensor() ? 1 : 0;
  to.reserve(list.size() + 1, leaves, 2 * leaves);
  std::vector<std::uint32_t> nodes(list.size(), no_index);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Item& item = list[i];
    if (item.target) continue;
    const Node& node = item.from->nodes[item.node];
    const std::string_view name = to.intern(item.path);
    if (node.kind == NodeKind::tensor) {
      nodes[i] = add_tensor(to, name, item);
    } else if (node.kind == NodeKind::value) {
      nodes[i] = to.value(name, item.from->values[node.index], node.conditional);
    } else if (node.kind == NodeKind::none) {
      nodes[i] = to.none(name, true);  // the list contains it only if no name shows it
    } else {
      const TypeData type = node.index != no_index ? item.from->types[node.index] : TypeData{};
      if (item.path.empty()) {
        to.data().nodes[0].index = static_cast<std::uint32_t>(to.data().types.size());
        to.data().types.push_back({"", type.version});
        continue;
      }
      nodes[i] = to.begin(node.kind, name, node.conditional || type.version == 0, "", type.version);
      to.end();
    }
  }
  // Done after their targets.
  std::map<std::string_view, std::uint32_t> markers;
  for (const Item& item : list) {
    if (!item.target) continue;
    std::uint32_t target = no_index;
    if (const auto found = index.find(*item.target)) target = nodes[*found];
    if (target == no_index) {
      const auto [marker, fresh] = markers.try_emplace(*item.target, no_index);
      if (fresh) {
        marker->second = to.begin(NodeKind::module, to.intern(*item.target));
        to.end();
      }
      target = marker->second;
    }
    to.alias(to.intern(item.path), target, true);
  }
  for (const auto& keeper : keepers) to.keep(keeper);
  to.set_capacity(capacity_of(list));
  if (in_order) to.set_in_order();
  to.set_metadata(metadata);
  to.data().properties = properties;
  to.data().left_out = left_out;
  to.data().beside = beside;
  return to.finish();
}

namespace {

class Renamer {
 public:
  Renamer(const Items& items, const NewPath& new_path)
      : list_(items.list), index_(list_), new_path_(new_path), bytes_(list_.size(), sum_of(list_)) {}

  Result<std::vector<Item>> run() {
    for (const Item& item : list_) {
      STELE_TRY(add(item.path, item));
      if (out_.size() > max_names) return Error(Errc::limit, "the snapshot has more than 2^24 names").path(item.path);
    }
    // If a tensor is removed, the first of its remaining names becomes the tensor.
    std::map<std::string_view, std::string> owners;
    for (const Tie& tie : ties_) {
      const Item& target = list_[tie.target];
      const auto [owner, first] = owners.try_emplace(target.path);
      if (first) {
        if (const auto kept = renamed(target.path, target)) {
          owner->second = *kept;
        } else {
          owner->second = out_[tie.item].path;
          out_[tie.item] = target;
          out_[tie.item].path = owner->second;
          continue;
        }
      }
      out_[tie.item].target = owner->second;
    }
    return std::move(out_);
  }

 private:
  static std::uint64_t sum_of(const std::vector<Item>& list) {
    std::uint64_t sum = 0;
    for (const Item& item : list) sum += item.path.size() + (item.target ? item.target->size() : 0);
    return sum;
  }
  Status put(const Item& item, std::string path) {
    out_.push_back(item);
    out_.back().path = std::move(path);
    return bytes_.add(out_.back());
  }

  /// An alias of a tensor or value; its target is set at the end.
  struct Tie {
    std::size_t item;    // index in out_
    std::size_t target;  // index in list_
  };

  std::optional<std::string> renamed(std::string_view path, const Item& item) const {
    if (!item.is_tensor()) return new_path_(path, nullptr);
    const LeafView leaf = item.leaf();
    return new_path_(path, &leaf);
  }

  /// Returns the new path of the members of `container` for an alias at `path`, if they keep a common prefix and none
  /// of them is removed.
  std::optional<std::string> together(std::string_view path, std::string_view container) const {
    std::optional<std::string> head;
    bool ok = true;
    index_.below(container, [&](const Item& item, std::string_view rest) {
      if (!ok) return;
      const Item* tensor = &item;
      if (item.target) {
        const auto target = index_.find(*item.target);
        if (!target) return;  // decided by the target's own members
        tensor = &list_[*target];
      }
      // Below the root, `rest` has no dot.
      const std::string tail = container.empty() ? "." + std::string(rest) : std::string(rest);
      const std::string old = path.empty() ? tail.substr(1) : std::string(path) + tail;
      auto now = renamed(old, *tensor);
      if (now && *now == tail.substr(1)) {
        now->clear();
      } else if (now && now->ends_with(tail)) {
        now->resize(now->size() - tail.size());
      } else {
        now.reset();
      }
      ok = now && (!head || *head == *now);
      head = std::move(now);
    });
    if (!ok) return std::nullopt;
    return head ? head : new_path_(path, nullptr);
  }

  /// Adds `item`, whose path before renaming is `path`.
  Status add(const std::string& path, const Item& item, int depth = 0) {
    if (depth > max_depth_ || out_.size() > max_names) {
      return Error(Errc::limit, "aliases of aliased containers nest too deeply").path(path);
    }
    if (!item.target) {
      const bool container = is_container(item.from->nodes[item.node].kind);
      const auto now = container ? together(path, item.path) : renamed(path, item);
      return now ? put(item, *now) : Status();
    }
    const auto target = index_.find(*item.target);
    if (target && !is_container(list_[*target].from->nodes[list_[*target].node].kind) && !list_[*target].target) {
      if (const auto now = renamed(path, list_[*target])) {
        ties_.push_back({out_.size(), *target});
        return put(item, *now);
      }
      return {};
    }
    const auto here = together(path, *item.target);
    const auto kept_target = together(*item.target, *item.target);
    if (here && kept_target) {
      Item moved = item;
      moved.target = *kept_target;
      return put(moved, *here);
    }
    Status status;
    index_.below(*item.target, [&](const Item& member, std::string_view rest) {
      if (!status) return;
      Item tied = member;
      if (!member.target && (member.is_tensor() || member.from->nodes[member.node].kind == NodeKind::value)) {
        tied.target = member.path;
      }
      status = add(path + std::string(rest), tied, depth + 1);
    });
    return status;
  }

  static constexpr int max_depth_ = 64;
  const std::vector<Item>& list_;
  ItemIndex index_;
  const NewPath& new_path_;
  PathBytes bytes_;
  std::vector<Item> out_;
  std::vector<Tie> ties_;
};

}  // namespace

Result<Items> renamed(Items items, const NewPath& new_path) {
  STELE_TRY_ASSIGN(items.list, Renamer(items, new_path).run());
  return items;
}

Result<Snapshot> with_new_paths(const Snapshot& snapshot, const NewPath& new_path) {
  return guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(Items all, Items::of(snapshot));
    STELE_TRY_ASSIGN(const Items items, renamed(std::move(all), new_path));
    return items.build();
  });
}

Result<Snapshot> part_of(const Snapshot& snapshot, std::string_view path) {
  if (path.empty()) return snapshot;
  bool found = false;
  auto part = with_new_paths(snapshot, [&](std::string_view name, const LeafView*) -> std::optional<std::string> {
    const bool below = name.size() > path.size() && name.starts_with(path) && name[path.size()] == '.';
    if (!below && name != path) return std::nullopt;
    found = true;
    return std::string(below ? name.substr(path.size() + 1) : std::string_view());
  });
  if (!part || found) return part;
  return Error(Errc::not_found, "no tensor or container has this name").path(path);
}

}  // namespace stele::inline v0::detail
