// Walks B-trees.
#include "b_tree.hpp"

#include <algorithm>
#include <vector>

namespace stele::inline v0::detail::hdf5 {

Status each_leaf(File& file, std::uint64_t tree, unsigned type, std::size_t key_size, const VisitChild& visit) {
  struct Node {
    std::uint64_t address;
    int level;  // -1: not known yet
  };
  constexpr int max_levels = 32;
  std::vector<Node> nodes{{tree, -1}};
  while (!nodes.empty()) {
    const Node node = nodes.back();
    nodes.pop_back();
    Bytes buffer, content;
    STELE_TRY_ASSIGN(In head, file.structure(node.address, 24, "TREE", buffer));
    const unsigned found = head.u8();
    const int level = head.u8();
    const std::uint64_t count = head.u16();
    if (found != type || level > max_levels || (node.level >= 0 && level != node.level)) {
      return bad("a node of a B-tree has the wrong type or level", node.address);
    }
    STELE_TRY_ASSIGN(const View bytes, file.read(node.address + 24, count * (key_size + 8), content));
    In in(bytes);
    const std::size_t first = nodes.size();
    for (std::uint64_t i = 0; i < count; ++i) {
      const View key = in.take(key_size);
      const std::uint64_t child = in.u64();
      if (level == 0) {
        STELE_TRY(visit(child, key));
      } else {
        nodes.push_back({child, level - 1});
      }
    }
    std::reverse(nodes.begin() + static_cast<std::ptrdiff_t>(first), nodes.end());
  }
  return {};
}

}  // namespace stele::inline v0::detail::hdf5
