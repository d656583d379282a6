// A snapshot as a list of names: what the transforms that change names work on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot_internal.hpp"
#include "stele/result.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// A tensor that a transform makes, in place of the one of the item's node.
struct DerivedLeaf {
  DType dtype;
  Shape shape;
  std::uint64_t bytes;
  Provider provider;
};

struct Item {
  std::string path;
  const SnapshotData* from = nullptr;
  std::uint32_t node = 0;              // in `from`; not an alias
  std::optional<std::string> target;   // an alias: the path that it stands for
  std::optional<DerivedLeaf> derived;  // tensors only

  bool is_tensor() const { return !target && from->nodes[node].kind == NodeKind::tensor; }
  LeafView leaf() const { return {*from, from->nodes[node].index}; }
};

/// Adds the tensor of an item, with its id and annotations; gives its node.
std::uint32_t add_tensor(SnapshotBuilder& to, SnapshotBuilder::Name name, const Item& item);

/// The items of a snapshot in order, and what must live as long as they.
struct Items {
  std::vector<Item> list;
  std::vector<std::shared_ptr<const void>> keepers;
  bool in_order = false;  // SnapshotData::in_order
  std::map<std::string, std::string> metadata;

  explicit Items(const Snapshot& snapshot);
  Items() = default;
  /// The flat snapshot. Errors: duplicate.
  Result<Snapshot> build() const;
  /// The item of that path that is a tensor; nullptr where there is none.
  Item* find_tensor(std::string_view path);
};

/// The new path of an item, or nothing where it goes.
using NewPath = std::function<std::optional<std::string>(std::string_view path, const LeafView* leaf)>;

/// Reverses the axes of the tensors that are chosen by path (see transpose()).
Result<Snapshot> transpose_where(const Snapshot& snapshot, const std::function<bool(std::string_view path)>& chosen,
                                 std::span<const std::size_t> axes = {});

/// Gives every item a new path. Ties follow: what stands for a container is taken apart only where the new names do not
/// continue one name, and the first name of a tensor that remains owns it. Errors: limit.
Result<Items> renamed(Items items, const NewPath& new_path);

}  // namespace detail
}  // namespace v0
}  // namespace stele
