// In-memory copies of checkpoints, which background saves write.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/threads.hpp"
#include "stele/bytes.hpp"
#include "stele/checkpoint.hpp"
#include "stele/transfer.hpp"

namespace stele::inline v0::detail::steps {

/// Memory for the copy of a checkpoint.
struct Block {
  Bytes own;
  std::shared_ptr<std::byte> locked;  // memory of a Transfer, instead of `own`
  std::size_t size = 0;

  std::span<std::byte> span() noexcept { return {locked != nullptr ? locked.get() : own.data(), size}; }
};

/// Memory for copies: at most `max_bytes`, in use or kept. Returned blocks are reused, because the page faults of fresh
/// memory take longer than the copy. A new block is allocated only after all kept blocks are released, so only the
/// blocks in use and the new block exist.
class StagingMemory {
 public:
  /// With `max_bytes` 0, there is one block of any size. `transfer` may be null; blocks are its memory.
  StagingMemory(std::uint64_t max_bytes, Transfer* transfer) : max_bytes_(max_bytes), transfer_(transfer) {}
  /// Returns false for a block that is larger than the total memory.
  bool admits(std::uint64_t bytes) const noexcept { return max_bytes_ == 0 || bytes <= max_bytes_; }
  /// Waits until a block of that size is free. Errors: those of Transfer::allocate_host(). Throws std::bad_alloc.
  Result<Block> take(std::uint64_t bytes);
  void give_back(Block block) noexcept;

 private:
  std::uint64_t max_bytes_;
  Transfer* transfer_;
  Mutex mutex_;
  Condition freed_;
  std::uint64_t used_ = 0;
  std::vector<Block> free_;
};

/// Returns the block size that staged() needs.
std::uint64_t staging_size(const Checkpoint& checkpoint);

/// Returns a checkpoint whose tensors are copied into `block`, and which refers to no object of the caller. Tensors of
/// devices are copied by `transfer`, if it is not null, to whose memory `block` must then belong. Errors: those of
/// reading its tensors.
Result<Checkpoint> staged(const Checkpoint& checkpoint, std::span<std::byte> block, const Workers& workers,
                          Transfer* transfer);

}  // namespace stele::inline v0::detail::steps
