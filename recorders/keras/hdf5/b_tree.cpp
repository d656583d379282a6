// Walks B-trees.
#include "b_tree.hpp"

#include <algorithm>
#include <vector>

namespace stele::inline v0::detail::hdf5 {
namespace {

constexpr int max_levels = 32;

}  // namespace

Status each_leaf(File& file, std::uint64_t tree, unsigned type, std::size_t key_size, const VisitChild& visit) {
  struct Node {
    std::uint64_t address;
    int level;  // -1: not known yet
  };
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

namespace {

/// Calls a function with the records of nodes of a B-tree of version 2. A pointer to a child has its number of records,
/// and above the parents of leaves also that of all records below it. The sizes of both follow from the largest numbers
/// that are possible.
class RecordReader {
 public:
  RecordReader(File& file, unsigned type, std::size_t record_size, const VisitRecord& visit)
      : file_(file), type_(type), record_size_(record_size), visit_(visit) {}

  Status run(std::uint64_t tree) {
    Bytes buffer;
    STELE_TRY_ASSIGN(In in, file_.structure(tree, 38, "BTHD", buffer));
    const unsigned version = in.u8(), type = in.u8();
    node_size_ = in.u32();
    const std::size_t size = in.u16();
    const unsigned depth = in.u16();
    in.u16();
    const std::uint64_t root = in.u64(), records = in.u16();
    if (version != 0 || type != type_ || size != record_size_ || depth > max_levels || node_size_ < head_size + size) {
      return bad("a B-tree of version 2 has the wrong type, or sizes that do not fit", tree);
    }
    std::uint64_t below = (node_size_ - head_size) / record_size_;  // the most records in a child and all below it
    count_bytes_ = bytes_for(below);
    for (unsigned level = 1; level <= depth; ++level) {
      const std::size_t pointer = 8 + count_bytes_ + (level > 1 ? bytes_for(below) : 0);
      pointers_.push_back(pointer);
      if (node_size_ < head_size + pointer) return bad("the nodes of a B-tree are too small", tree);
      const std::uint64_t most = (node_size_ - head_size - pointer) / (record_size_ + pointer);
      const auto all = checked_mul(most + 1, below);
      if (!all || *all > UINT64_MAX - most) return bad("a B-tree has too many levels", tree);
      below = *all + most;
    }
    return root == undefined && records == 0 ? Status() : node(root, records, depth);
  }

 private:
  static constexpr std::uint64_t head_size = 10;  // letters, version, type, checksum

  Status node(std::uint64_t address, std::uint64_t records, unsigned level) {
    const std::size_t pointer = level == 0 ? 0 : pointers_[level - 1];
    const std::uint64_t size = head_size + records * record_size_ + (level == 0 ? 0 : (records + 1) * pointer);
    if (size > node_size_) return bad("a node of a B-tree has too many records", address);
    Bytes buffer;
    STELE_TRY_ASSIGN(In in, file_.structure(address, size, level == 0 ? "BTLF" : "BTIN", buffer));
    if (in.u8() != 0 || in.u8() != type_) return bad("a node of a B-tree has the wrong type", address);
    In children(in);
    children.take(records * record_size_);
    for (std::uint64_t i = 0; i <= records; ++i) {
      if (level != 0) {
        In child(children.take(pointer));
        const std::uint64_t at = child.u64(), count = child.number(count_bytes_);
        STELE_TRY(node(at, count, level - 1));
      }
      if (i < records) STELE_TRY(visit_(in.take(record_size_)));
    }
    return {};
  }

  File& file_;
  const unsigned type_;
  const std::size_t record_size_;
  const VisitRecord& visit_;
  std::uint64_t node_size_ = 0;
  std::size_t count_bytes_ = 0;
  std::vector<std::size_t> pointers_;  // bytes of a pointer, by the level of its node - 1
};

}  // namespace

Status each_record(File& file, std::uint64_t tree, unsigned type, std::size_t record_size, const VisitRecord& visit) {
  return RecordReader(file, type, record_size, visit).run(tree);
}

}  // namespace stele::inline v0::detail::hdf5
