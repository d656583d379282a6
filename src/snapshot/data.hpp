// The arrays of a Snapshot, and functions that append to them.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_pool.hpp"
#include "base/properties.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {

struct LeafData {
  Provider provider;
  std::uint64_t bytes = 0;
  std::uint32_t shape = 0;  // index of the first extent in the pool
  DType dtype = DType::none;
  std::uint16_t rank = 0;
  std::uint32_t node = 0;
  std::uint32_t extra = no_index;
};

struct LeafExtra {
  std::optional<ParamId> id;
  std::unique_ptr<const Annotations> annotations;
};

struct TypeData {
  std::string name;
  std::uint32_t version = 0;
};

/// A hash table that finds the numbers of types by name and version.
class STELE_EXPORT TypeIndex {
 public:
  /// Returns the number of the type. Adds the type to `types` if it is missing.
  std::uint32_t find_or_add(std::vector<TypeData>& types, std::string_view name, std::uint32_t version);
  /// Returns the number of slots visited so far, with which tests check that the time is linear.
  std::uint64_t steps() const noexcept { return steps_; }

 private:
  std::vector<std::uint32_t> slots_;  // no_index: empty; their number is a power of two, and at most half are full
  std::size_t known_ = 0;             // number of types in the table
  std::uint64_t steps_ = 0;
};

/// A field with FieldFlags::constant that a walk omitted.
struct ConstantField {
  std::uint32_t module;  // node of the module
  std::string_view name;
};

/// One block for the large arrays of a snapshot: page faults of fresh memory would cost more than filling it, and a
/// block of 2 MiB can be one huge page. Allocations that do not fit use the heap.
class Arena final : public std::pmr::memory_resource {
 public:
  void reserve(std::size_t size) {
    constexpr std::size_t large = std::size_t{1} << 20;
    if (size >= large && block_.empty()) block_ = Bytes(std::max(size, 2 * large));
  }

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    const std::size_t at = (used_ + alignment - 1) / alignment * alignment;
    if (at > block_.size() || size > block_.size() - at) return ::operator new(size, std::align_val_t(alignment));
    used_ = at + size;
    return block_.data() + at;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t alignment) override {
    const auto* at = static_cast<std::byte*>(memory);
    const bool inside = std::greater_equal<>()(at, block_.data()) && std::less<>()(at, block_.data() + block_.size());
    if (!inside) ::operator delete(memory, std::align_val_t(alignment));
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  Bytes block_;
  std::size_t used_ = 0;
};

/// The graph of operations: string of an entry in SnapshotData::left_out.
inline constexpr std::string_view graph_part = "the graph: only its tensors are saved";
/// Other parts of a checkpoint: strings of entries in SnapshotData::left_out.
inline constexpr std::string_view training_part = "the training configuration", optimizer_part = "the optimizer state";
/// The code of a module: string of an entry in SnapshotData::left_out.
inline constexpr std::string_view program_part = "the program: only its tensors are saved";

/// The key of the metadata that describes a delta (stele/delta.hpp).
inline constexpr const char* delta_key = "stele.delta";

/// Refuses a delta where a model is expected. Errors: invalid_argument.
Status not_a_delta(const SnapshotData& snapshot);

struct SideFiles;

struct SnapshotData {
  Arena arena;
  std::pmr::vector<Node> nodes{&arena};
  std::pmr::vector<LeafData> leaves{&arena};
  std::vector<LeafExtra> extras;
  std::pmr::vector<Extent> extents{&arena};
  std::vector<Value> values;
  std::vector<TypeData> types;
  TypeIndex type_index;  // used during the build
  NamePool names;
  std::vector<std::uint32_t> name_order;  // flat only, if known: all nodes except the root, sorted by name
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const Properties> properties;
  // Parts of the file that are not in the nodes, such as its graph. A save reports those for which Capabilities::keeps
  // returns false.
  std::vector<std::string> left_out;
  std::shared_ptr<const SideFiles> beside;  // files of the folder that are not tensors
  // messages for people about parts that the reader did not understand
  std::vector<std::string> notes;
  std::vector<std::shared_ptr<const void>> keepers;  // own the memory that providers and names point into
  bool flat = false;                                 // node names are whole paths
  UnknownKinds unknown_kinds;                        // nested by nest(), or from a file without kinds
  bool consumable = false;                           // the tensors may be moved out (into_record)
  const TypeInfo* type = nullptr;                    // type of the module of which this is a snapshot
  std::vector<ConstantField> constants;       // for a module in memory: the constants of each class, at its first path
  std::map<std::string, std::string> origin;  // properties of a file that its format needs to write an equal file
  bool in_order = false;                      // leaves should be read one after the other, in the source's order
  // Bytes of tensors that the files can contain, if this is less certain than the leaves' ranges in a file (compressed
  // data or text). 0: the sum of the leaves. Bounds a load (src/base/limits.hpp).
  std::uint64_t capacity = 0;
};

/// Appends a node below `parent`. Inline, because it takes most of the time of the walk over a module.
inline Node& push_node(SnapshotData& data, NodeKind kind, const SnapshotBuilder::Name& name, bool conditional,
                       std::uint32_t parent, std::uint32_t index) {
  const auto next = static_cast<std::uint32_t>(data.nodes.size() + 1);
  return data.nodes.emplace_back(
      Node{name.data, static_cast<std::uint32_t>(name.size), kind, conditional, parent, next, index});
}

/// Appends a tensor's node and leaf.
inline void push_tensor(SnapshotData& data, const SnapshotBuilder::Name& name, bool conditional, std::uint32_t parent,
                        DType dtype, std::span<const Extent> shape, std::uint64_t bytes, const Provider& provider) {
  const auto node = static_cast<std::uint32_t>(data.nodes.size());
  push_node(data, NodeKind::tensor, name, conditional, parent, static_cast<std::uint32_t>(data.leaves.size()));
  data.leaves.push_back(LeafData{provider, bytes, static_cast<std::uint32_t>(data.extents.size()), dtype,
                                 static_cast<std::uint16_t>(shape.size()), node, no_index});
  for (const Extent e : shape) data.extents.push_back(e);
}

/// Returns a copy of the arrays for a transform. The copy keeps the base alive.
std::unique_ptr<SnapshotData> derived_data(const Snapshot& base);

}  // namespace stele::inline v0::detail
