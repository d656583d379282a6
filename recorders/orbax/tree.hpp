// The tree of an item, from its `_METADATA`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::orbax {

/// The kind of a leaf, from its value_type.
enum class LeafKind : std::uint8_t { array, scalar, text, none, empty_dict, empty_list, other };

/// A node: a leaf, or a container of nodes. Nodes are in an array, the root first.
struct TreeNode {
  std::string name{};
  bool number = false;  // the name is an index of a list or tuple
  bool is_leaf = false;
  LeafKind kind = LeafKind::other;
  std::string type{};  // the value_type, for messages
  std::string key{};   // the leaf's name in the store
  std::vector<std::size_t> children{};
};

/// The member of the tree's document that is true if chunks with only the fill value are stored too, so that an absent
/// chunk is lost. Older versions of Orbax have no such member.
inline constexpr std::string_view stores_all_chunks = "store_array_data_equal_to_fill_value";

/// Maximum depth of a tree: below the bound of modules (512).
inline constexpr std::size_t max_tree_depth = 256;

/// Reads the tree. Errors: malformed, duplicate, limit.
Result<std::vector<TreeNode>> read_tree(const Value& metadata, IndexBudget& memory);

}  // namespace stele::inline v0::detail::orbax
