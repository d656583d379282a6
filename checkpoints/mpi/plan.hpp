// Who writes which box, decided by process 0 from the boxes of all: no communication here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "snapshot/shard_index.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::mpi::detail {

using v0::detail::Box;
using v0::detail::shards::ShardIndex;
using v0::detail::shards::ShardLayout;

/// A whole tensor, of which processes own boxes.
struct GlobalTensor {
  std::string name;
  DType dtype = DType::none;
  std::vector<Extent> shape;
};

/// The box of this process.
struct LocalTensor {
  GlobalTensor whole;
  Box box;
  std::uint32_t leaf = 0;  // of the snapshot
};

/// Checksums (XXH3-64) of a box's bytes.
struct BoxHashes {
  std::uint64_t all = 0;
  std::vector<std::uint64_t> pieces{};  // of shards::piece_bytes each; empty if the box is one piece
};

/// All tensors of all processes, in the order of their names.
class TensorTable {
 public:
  /// Appends those tensors of a packed list that are not in the table yet. Errors: shape_mismatch, dtype_mismatch (two
  /// processes differ).
  Status add(std::string_view packed);
  static void pack(std::string& to, const GlobalTensor& tensor);
  const std::vector<GlobalTensor>& tensors() const noexcept { return tensors_; }
  /// Returns the number of a tensor, or the size of the table.
  std::uint32_t find(std::string_view name) const;

 private:
  std::vector<GlobalTensor> tensors_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

/// Number of tensors whose boxes are gathered at once, so that process 0 holds at most some million of boxes.
std::uint32_t batch_size(std::size_t processes);

/// Returns the message of a process for the tensors [first, end) of the table: its boxes (`local` by number; null:
/// none) and, if `hashes` is not empty, their checksums.
std::string pack_boxes(const std::vector<const LocalTensor*>& local, std::uint32_t first, std::uint32_t end,
                       const std::vector<BoxHashes>& hashes);

/// Checks the boxes of all processes, batch by batch, and assigns each to one process.
class Planner {
 public:
  explicit Planner(const TensorTable& table) : table_(table) {}
  /// Adds the messages of all processes for the tensors [first, end). Returns, for each process, the numbers of the
  /// tensors (less `first`) that it writes, packed. Errors: malformed (the boxes do not cover a tensor; replicas
  /// differ).
  Result<std::vector<std::string>> add(std::uint32_t first, std::uint32_t end, const std::vector<std::string>& messages,
                                       bool hashes);
  /// Returns the layouts and tensors; the number of a box's file is that of its process.
  ShardIndex take() noexcept { return std::move(index_); }

 private:
  Result<std::uint32_t> layout_of(ShardLayout layout, const std::string& name);

  const TensorTable& table_;
  ShardIndex index_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> layouts_;  // by hash
};

/// Numbers the files anew: `numbers` has the new number of each process's file.
void renumber(ShardIndex& index, const std::vector<std::uint32_t>& numbers);

}  // namespace stele::inline v0::mpi::detail
