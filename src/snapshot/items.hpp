// A snapshot as a list of names, which all renaming functions use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/data.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// A tensor from a transform, which replaces the tensor of the item's node.
struct DerivedLeaf {
  DType dtype;
  Shape shape;
  std::uint64_t bytes;
  Provider provider;
};

inline bool is_container(NodeKind kind) { return kind >= NodeKind::module && kind <= NodeKind::variant; }

struct Item {
  std::string path;
  const SnapshotData* from = nullptr;
  std::uint32_t node = 0;              // node in `from`; not an alias
  std::optional<std::string> target;   // for an alias: the path of its target
  std::optional<DerivedLeaf> derived;  // tensors only

  bool is_tensor() const { return !target && from->nodes[node].kind == NodeKind::tensor; }
  LeafView leaf() const { return {*from, from->nodes[node].index}; }
};

/// Adds the tensor of an item, with its id and annotations. Returns its node.
std::uint32_t add_tensor(SnapshotBuilder& to, SnapshotBuilder::Name name, const Item& item);

/// The items of a snapshot in order, with the owners of their data.
struct Items {
  std::vector<Item> list;
  std::vector<std::shared_ptr<const void>> keepers;
  bool in_order = false;  // SnapshotData::in_order
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const Properties> properties;
  std::vector<std::string> left_out;        // SnapshotData::left_out
  std::shared_ptr<const SideFiles> beside;  // SnapshotData::beside

  /// Lists a snapshot. The list holds whole paths, and a file may repeat a long name in every path. Errors: limit, if
  /// they take more than 16 MiB, 256 bytes for each node and two for each byte of the snapshot's names together.
  static Result<Items> of(const Snapshot& snapshot);
  /// Keeps alive the data that the items of `other` point into. Takes its side files if the items have none.
  void keep(const Items& other);
  Items() = default;
  /// Returns the flat snapshot. Errors: duplicate.
  Result<Snapshot> build() const;
  /// Returns the tensor with that path, or nullptr.
  Item* find_tensor(std::string_view path);
};

/// Finds items by path.
class ItemIndex {
 public:
  explicit ItemIndex(const std::vector<Item>& list) : list_(list), order_(list.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto before = [&](std::size_t a, std::size_t b) { return list_[a].path < list_[b].path; };
    if (!std::is_sorted(order_.begin(), order_.end(), before)) std::sort(order_.begin(), order_.end(), before);
  }
  /// Returns the first two items with equal paths.
  std::optional<std::pair<std::size_t, std::size_t>> duplicate() const {
    const auto same = std::adjacent_find(order_.begin(), order_.end(),
                                         [&](std::size_t a, std::size_t b) { return list_[a].path == list_[b].path; });
    if (same == order_.end()) return std::nullopt;
    return std::pair(*same, *std::next(same));
  }
  std::optional<std::size_t> find(std::string_view path) const {
    const auto at = lower(path);
    return at != order_.end() && list_[*at].path == path ? std::optional(*at) : std::nullopt;
  }
  /// Visits the items below the path (all items below the root). `rest` begins with a dot, except below the root.
  template <class Visit>
  void below(std::string_view path, Visit visit) const {
    const std::string prefix = path.empty() ? std::string() : std::string(path) + '.';
    for (auto at = lower(prefix); at != order_.end() && list_[*at].path.starts_with(prefix); ++at) {
      if (list_[*at].path.empty()) continue;
      visit(list_[*at], std::string_view(list_[*at].path).substr(path.size()));
    }
  }

 private:
  std::vector<std::size_t>::const_iterator lower(std::string_view path) const {
    return std::lower_bound(order_.begin(), order_.end(), path,
                            [&](std::size_t i, std::string_view p) { return list_[i].path < p; });
  }
  const std::vector<Item>& list_;
  std::vector<std::size_t> order_;
};

/// Returns the new path of an item, or nullopt to remove it.
using NewPath = std::function<std::optional<std::string>(std::string_view path, const LeafView* leaf)>;

/// Gives every item a new path. Ties follow: an alias of a container is split only if the new names have no common
/// prefix, and the first remaining name of a tensor becomes the tensor. Errors: limit.
Result<Items> renamed(Items items, const NewPath& new_path);
/// Gives every node of a snapshot a new path.
Result<Snapshot> with_new_paths(const Snapshot& snapshot, const NewPath& new_path);

/// Returns the part below `path`, with names relative to it; the snapshot itself if `path` is empty. Errors: not_found.
Result<Snapshot> part_of(const Snapshot& snapshot, std::string_view path);

}  // namespace stele::inline v0::detail
