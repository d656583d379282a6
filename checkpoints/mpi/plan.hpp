// Assigns boxes to processes. Process 0 decides from the boxes of all processes; this code does not communicate.
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

/// A whole tensor. Each process owns boxes of it.
struct GlobalTensor {
  std::string name;
  DType dtype = DType::none;
  std::vector<Extent> shape;
};

/// The box of a tensor in this process.
struct LocalTensor {
  GlobalTensor whole;
  Box box;
  std::uint32_t leaf = 0;  // its index in the snapshot
};

/// Checksums (XXH3-64) of a box's bytes.
struct BoxHashes {
  std::uint64_t all = 0;
  std::vector<std::uint64_t> pieces{};  // one for each shards::piece_bytes bytes; empty if the box is one piece
};

/// The tensors of all processes, in the order of their names.
class TensorTable {
 public:
  /// Appends the tensors of a packed list that are not in the table yet. Errors: shape_mismatch, dtype_mismatch (two
  /// processes differ).
  Status add(std::string_view packed);
  static void pack(std::string& to, const GlobalTensor& tensor);
  const std::vector<GlobalTensor>& tensors() const noexcept { return tensors_; }
  /// Returns the number of a tensor, or the size of the table if it has none.
  std::uint32_t find(std::string_view name) const;

 private:
  std::vector<GlobalTensor> tensors_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

/// Returns the number of tensors whose boxes are gathered at once: bounds the boxes in process 0 to about a million.
std::uint32_t batch_size(std::size_t processes);

/// Returns a process's message for the tensors [first, end) of the table: its boxes and, if `hashes` is not empty,
/// their checksums. `local` is indexed by the tensor's number; null means that the process has no box.
std::string pack_boxes(const std::vector<const LocalTensor*>& local, std::uint32_t first, std::uint32_t end,
                       const std::vector<BoxHashes>& hashes);

/// Checks the boxes of all processes, batch by batch, and assigns each to one process.
class Planner {
 public:
  explicit Planner(const TensorTable& table) : table_(table) {}
  /// Adds the messages of all processes for the tensors [first, end). Returns, for each process, the packed numbers of
  /// the tensors that it writes, relative to `first`. Errors: malformed (the boxes do not cover a tensor; replicas
  /// differ).
  Result<std::vector<std::string>> add(std::uint32_t first, std::uint32_t end, const std::vector<std::string>& messages,
                                       bool hashes);
  /// Returns the layouts and tensors. The file number of a box is the number of its process.
  ShardIndex take() noexcept { return std::move(index_); }

 private:
  Result<std::uint32_t> layout_of(ShardLayout layout, const std::string& name);

  const TensorTable& table_;
  ShardIndex index_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> layouts_;  // numbers of the layouts with a hash
};

/// Renumbers the files: `numbers` has the new number of each process's file.
void renumber(ShardIndex& index, const std::vector<std::uint32_t>& numbers);

}  // namespace stele::inline v0::mpi::detail
