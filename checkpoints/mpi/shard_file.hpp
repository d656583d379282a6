// The file of one process: its boxes, in the layout of PyTorch's HuggingFaceStorageWriter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan.hpp"
#include "stele/bundle.hpp"
#include "stele/options.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::mpi::detail {

/// A file of a part, as its writer reports it to process 0.
struct WrittenFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header = 0;  // XXH3-64 of the length field and the header
  std::uint64_t xxh3 = 0;    // XXH3-64 of all bytes
  std::string version{};     // in a store
};

/// Returns the checksums of the given leaves.
Result<std::vector<BoxHashes>> hash_leaves(const Snapshot& snapshot, const std::vector<std::uint32_t>& leaves,
                                           const v0::detail::Workers& workers);

/// Returns the name of a process's file.
std::string shard_name(int process);

/// Returns the content of a process's file: `tensors`, whose checksums are `hashes`.
Result<Snapshot> shard_of(const Snapshot& snapshot, const std::vector<const LocalTensor*>& tensors,
                          const std::vector<BoxHashes>& hashes);

/// Writes a shard as the file `name` of a bundle.
Result<WrittenFile> write_shard(const Snapshot& shard, Bundle& files, const std::string& name,
                                const SaveOptions& options);
/// Writes a shard as a delta. `name`: the name of the whole shard; the delta's file has another suffix.
Result<WrittenFile> write_shard_delta(const Snapshot& base, const Snapshot& shard, Bundle& files,
                                      const std::string& name, const SaveOptions& options);
/// Returns the name of the delta in place of a whole shard.
std::string delta_name(std::string_view shard);
std::string whole_name(std::string_view shard);

}  // namespace stele::inline v0::mpi::detail
