#include "staging.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/parallel.hpp"
#include "base/threads.hpp"
#include "snapshot/data.hpp"
#include "snapshot/device_leaves.hpp"
#include "snapshot/module_leaf.hpp"

namespace stele::inline v0::detail::steps {
namespace {

constexpr std::uint64_t alignment = 64;
/// Bytes that a thread copies at a time (4 MiB).
constexpr std::uint64_t copy_size = std::uint64_t{4} << 20;

std::uint64_t padded(std::uint64_t bytes) noexcept { return (bytes + alignment - 1) / alignment * alignment; }

std::uint64_t staging_size(const Snapshot& snapshot) {
  std::uint64_t bytes = 0;
  for (const LeafData& leaf : snapshot.data()->leaves) bytes += padded(leaf.bytes);
  return bytes;
}

/// Receives a leaf that is not in memory.
class Into final : public PieceSink {
 public:
  explicit Into(std::span<std::byte> to) : to_(to) {}
  std::byte* place(std::uint64_t, std::size_t size) override { return size <= to_.size() ? to_.data() : nullptr; }
  Status piece(std::span<const std::byte> bytes) override {
    if (bytes.size() > to_.size()) return Error(Errc::malformed, "a tensor has more bytes than its shape");
    if (to_.data() != bytes.data()) std::memcpy(to_.data(), bytes.data(), bytes.size());
    to_ = to_.subspan(bytes.size());
    return {};
  }

 private:
  std::span<std::byte> to_;
};

struct Copy {
  const std::byte* from;
  std::byte* to;
  std::size_t size;
};

struct Copies {
  std::vector<Copy> host;
  std::vector<DeviceCopy> device;
  Transfer* transfer;
};

/// Returns a leaf's tensor if a Transfer copies it.
std::optional<OnDevice> copied_by_transfer(const LeafView& leaf, const Transfer* transfer) {
  const TensorOps* ops = module_tensor_ops(leaf.provider());
  if (ops == nullptr || transfer == nullptr || leaf.byte_size() == 0) return std::nullopt;
  return device_of(*ops, leaf.provider().at);
}

/// Points the leaves of a copy of `snapshot` into `block`, and removes the used part from `block`. Appends the pending
/// copies to `copies`.
Result<Snapshot> stage(const Snapshot& snapshot, std::span<std::byte>& block, Copies& copies) {
  auto data = derived_data(snapshot);
  ReadContext context;
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const auto size = static_cast<std::size_t>(leaf.byte_size());
    const std::span<std::byte> to = block.first(size);
    block = block.subspan(static_cast<std::size_t>(padded(size)));
    const auto from = leaf.view();
    if (const auto device = copied_by_transfer(leaf, copies.transfer)) {
      copies.device.push_back({to.data(), device->data, size, device->where});
    } else if (from.empty() && size != 0) {
      Into into(to);
      STELE_TRY(leaf.stream(into, context));
    }
    for (std::size_t at = 0; at < from.size(); at += copy_size) {
      copies.host.push_back({from.data() + at, to.data() + at, std::min<std::size_t>(copy_size, from.size() - at)});
    }
    data->leaves[i].provider = {&element_leaf_ops, to.data(), 0};
  }
  // Copies the keys of the module's maps: they are the only names that the module can change.
  for (Node& node : data->nodes) {
    if (node.name == nullptr || node.parent == no_index || data->nodes[node.parent].kind != NodeKind::map) continue;
    node.name = data->names.add({node.name, node.name_size}).data();
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace

Result<Block> StagingMemory::take(std::uint64_t bytes) {
  Lock lock(mutex_);
  freed_.wait(lock, [&] { return used_ == 0 || (max_bytes_ != 0 && used_ + bytes <= max_bytes_); });
  const auto fits = [&](const Block& block) { return block.size >= bytes && block.size <= bytes + bytes / 4; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  Block block;
  if (found != free_.end()) {
    block = std::move(*found);
    free_.erase(found);
  } else {
    free_.clear();  // the checkpoint's size has changed
    block.size = static_cast<std::size_t>(bytes);
    if (transfer_ != nullptr) {
      STELE_TRY_ASSIGN(block.locked, transfer_->allocate_host(block.size));
    } else {
      block.own = Bytes(block.size);
    }
  }
  used_ += block.size;
  return block;
}

void StagingMemory::give_back(Block block) noexcept {
  {
    const Lock lock(mutex_);
    used_ -= block.size;
    // If the list cannot grow, the block is released.
    static_cast<void>(guarded([&]() -> Status {
      free_.push_back(std::move(block));
      return {};
    }));
  }
  freed_.notify_all();
}

std::uint64_t staging_size(const Checkpoint& checkpoint) {
  std::uint64_t bytes = staging_size(checkpoint.parameters);
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) bytes += staging_size(arrays);
  return bytes;
}

Result<Checkpoint> staged(const Checkpoint& checkpoint, std::span<std::byte> block, const Workers& workers,
                          Transfer* transfer) {
  Copies copies{{}, {}, transfer};
  if (transfer != nullptr) STELE_TRY(transfer->begin());
  Checkpoint copy{{}, checkpoint.graph, checkpoint.training, {}};
  STELE_TRY_ASSIGN(copy.parameters, stage(checkpoint.parameters, block, copies));
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
    STELE_TRY_ASSIGN(Snapshot kind, stage(arrays, block, copies));
    copy.optimizer.set_snapshot(key, std::move(kind));
  }
  parallel(workers, copies.host.size(), [&](std::size_t i) {
    const Copy& one = copies.host[i];
    std::memcpy(one.to, one.from, one.size);
  });
  if (!copies.device.empty()) STELE_TRY(transfer->copy_from_devices(copies.device));
  return copy;
}

}  // namespace stele::inline v0::detail::steps
