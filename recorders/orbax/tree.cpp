// Reads the tree of an item from its `_METADATA`.
#include "tree.hpp"

#include <utility>

#include "base/shortened.hpp"

namespace stele::inline v0::detail::orbax {
namespace {

std::string_view text(const Value* value) {
  const std::string* const found = value != nullptr ? value->as_string() : nullptr;
  return found != nullptr ? std::string_view(*found) : std::string_view();
}

LeafKind kind_of(std::string_view type) {
  static const std::map<std::string_view, LeafKind> kinds = {
      {"jax.Array", LeafKind::array}, {"np.ndarray", LeafKind::array}, {"scalar", LeafKind::scalar},
      {"string", LeafKind::text},     {"None", LeafKind::none},        {"Dict", LeafKind::empty_dict},
      {"List", LeafKind::empty_list}, {"NamedTuple", LeafKind::none},
  };
  const auto found = kinds.find(type);
  return found != kinds.end() ? found->second : LeafKind::other;
}

Error wrong(std::string_view path, std::string_view what) {
  return Error(Errc::malformed, "the tree of an Orbax item is malformed")
      .path(shortened(path, 200))
      .found(std::string(what));
}

}  // namespace

Result<std::vector<TreeNode>> read_tree(const Value& metadata, IndexBudget& memory) {
  const Value* const tree = metadata.find("tree_metadata");
  if (tree == nullptr || tree->as_map() == nullptr) return wrong("", "no tree_metadata");
  std::vector<TreeNode> nodes(1);
  std::map<std::pair<std::size_t, std::string>, std::size_t> known;
  for (const auto& [path, entry] : *tree->as_map()) {
    const Value* const keys = entry.find("key_metadata");
    const Value::List* const list = keys != nullptr ? keys->as_list() : nullptr;
    if (list == nullptr || list->size() > max_tree_depth) return wrong(path, "key_metadata that are not a list");
    std::size_t node = 0;
    std::string full;
    bool fresh = list->empty();
    for (const Value& key : *list) {
      const Value* const name = key.find("key");
      const Value* const type = key.find("key_type");
      std::string segment(text(name));
      if (name != nullptr && name->as_i64() != nullptr) segment = std::to_string(*name->as_i64());
      if (name == nullptr || (name->as_string() == nullptr && name->as_i64() == nullptr)) {
        return wrong(path, "a key without a name");
      }
      if (nodes[node].is_leaf) return wrong(path, "an entry inside a leaf");
      if (!full.empty() || &key != list->data()) full += '.';
      full += segment;
      if (!memory.take(2 * sizeof(TreeNode) + 4 * segment.size() + 160)) {
        return index_error("the tree needs more memory than the size of its metadata allows");
      }
      const auto [at, added] = known.try_emplace({node, segment}, nodes.size());
      if (added) {
        nodes[node].children.push_back(nodes.size());
        TreeNode& made = nodes.emplace_back();
        made.number = type != nullptr && type->as_i64() != nullptr && *type->as_i64() == 1;
        made.name = std::move(segment);
      }
      fresh = added;
      node = at->second;
    }
    if (!fresh || !nodes[node].children.empty() || nodes[node].is_leaf)
      return wrong(path, "an entry that occurs twice");
    if (!memory.take(full.size() + 64)) return index_error("the tree needs more memory than its metadata allow");
    const Value* const value = entry.find("value_metadata");
    const std::string_view type = value != nullptr ? text(value->find("value_type")) : "";
    const Value* const skip = value != nullptr ? value->find("skip_deserialize") : nullptr;
    TreeNode& leaf = nodes[node];
    leaf.is_leaf = true;
    leaf.key = std::move(full);
    leaf.type = shortened(type, 60);
    leaf.kind = kind_of(type);
    // Types that are not in the list are arrays, or have no data.
    if (leaf.kind == LeafKind::other && skip != nullptr && skip->as_bool() != nullptr && *skip->as_bool()) {
      leaf.kind = LeafKind::none;
    }
  }
  return nodes;
}

}  // namespace stele::inline v0::detail::orbax
