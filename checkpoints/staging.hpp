// In-memory copies of checkpoints, which background saves write.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/checkpoint.hpp"

namespace stele::inline v0::detail::steps {

/// Memory for copies: at most `max_bytes`, in use or kept. Returned blocks are reused, because the page faults of fresh
/// memory take longer than the copy. A new block is allocated only after all kept blocks are released, so the blocks in
/// existence are those in use and the new one.
class StagingMemory {
 public:
  /// With `max_bytes` 0, there is one block of any size.
  explicit StagingMemory(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}
  /// Returns false for a block that is larger than the total memory.
  bool admits(std::uint64_t bytes) const noexcept { return max_bytes_ == 0 || bytes <= max_bytes_; }
  /// Waits until a block of that size is free. Throws std::bad_alloc.
  Bytes take(std::uint64_t bytes);
  void give_back(Bytes block) noexcept;

 private:
  std::uint64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::uint64_t used_ = 0;
  std::vector<Bytes> free_;
};

/// Returns the block size that staged() needs.
std::uint64_t staging_size(const Checkpoint& checkpoint);

/// Returns a checkpoint whose tensors are copied into `block`, and which refers to no object of the caller. Errors:
/// those of reading its tensors.
Result<Checkpoint> staged(const Checkpoint& checkpoint, std::span<std::byte> block, const Workers& workers);

}  // namespace stele::inline v0::detail::steps
