#include "snapshot/device_leaves.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/threads.hpp"
#include "snapshot/data.hpp"
#include "snapshot/module_leaf.hpp"

namespace stele::inline v0::detail {

std::optional<OnDevice> device_of(const TensorOps& ops, const void* object) {
  std::optional<OnDevice> found;
  if (ops.locations == nullptr) return found;
  each_location(ops, object, [&](Location where, std::byte* data) {
    if (!found && !where.is_host()) found = OnDevice{where, data};
  });
  return found;
}

Error unreachable_device(Location where, bool saving) {
  return Error(Errc::invalid_argument, "the tensor is in the memory of a device, and nothing copies it")
      .expected("a tensor in main memory")
      .found(to_string(where))
      .hint(saving ? "set SaveOptions::transfer" : "set LoadOptions::transfer");
}

namespace {

/// Bytes of one copy: its time passes before the first piece of a leaf can be used.
constexpr std::size_t copy_size = std::size_t{4} << 20;
/// Maximum size of a leaf that is read together with other leaves.
constexpr std::uint64_t largest_grouped = std::uint64_t{1} << 20;
/// Alignment of leaves in memory: the alignment of the largest element.
constexpr std::uint64_t alignment = 64;

struct Leaf {
  OnDevice from;
  std::uint64_t size = 0;
  std::uint32_t group = 0;   // group of a small leaf; unused for large leaves
  std::uint64_t offset = 0;  // in its group
};
/// Small leaves that are copied together.
struct Group {
  std::uint32_t first = 0, last = 0;  // leaves, without the large ones
  std::uint64_t size = 0;
};

/// A buffer, which it returns.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(Transfer& transfer, std::byte* buffer) noexcept : transfer_(&transfer), buffer_(buffer) {}
  Lease(Lease&& other) noexcept : transfer_(other.transfer_), buffer_(std::exchange(other.buffer_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(transfer_, other.transfer_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~Lease() {
    if (buffer_ != nullptr) transfer_->release(buffer_);
  }
  std::byte* get() const noexcept { return buffer_; }

 private:
  Transfer* transfer_ = nullptr;
  std::byte* buffer_ = nullptr;
};

/// The leaves of one snapshot. A call keeps no buffer after its end, because other snapshots may use the same buffers.
class DeviceLeaves {
 public:
  explicit DeviceLeaves(Transfer& transfer)
      : transfer_(transfer), copy_size_(std::min(transfer.buffer_size(), copy_size) / alignment * alignment) {}

  void add(const OnDevice& from, std::uint64_t size) {
    Leaf leaf{from, size};
    if (is_small(size)) {
      if (groups_.empty() || groups_.back().size + size > copy_size_) {
        groups_.push_back({static_cast<std::uint32_t>(leaves_.size()), 0, 0});
      }
      Group& group = groups_.back();
      leaf.group = static_cast<std::uint32_t>(groups_.size() - 1);
      leaf.offset = group.size;
      group.size += (size + alignment - 1) / alignment * alignment;
      group.last = static_cast<std::uint32_t>(leaves_.size() + 1);
    }
    leaves_.push_back(leaf);
  }
  std::size_t size() const noexcept { return leaves_.size(); }

  Status read(std::uint64_t number, std::uint64_t offset, std::span<std::byte> out) {
    const Leaf& leaf = leaves_[static_cast<std::size_t>(number)];
    if (is_small(leaf.size)) {
      STELE_TRY_ASSIGN(const std::shared_ptr<const Bytes> group, group_of(leaf));
      std::memcpy(out.data(), group->data() + leaf.offset + offset, out.size());
      return {};
    }
    return each_piece(leaf, offset, out.size(), [&](std::span<const std::byte> piece) -> Status {
      std::memcpy(out.data(), piece.data(), piece.size());
      out = out.subspan(piece.size());
      return {};
    });
  }

  Status stream(std::uint64_t number, PieceSink& sink) {
    const Leaf& leaf = leaves_[static_cast<std::size_t>(number)];
    if (leaf.size == 0) return {};
    if (is_small(leaf.size)) {
      STELE_TRY_ASSIGN(const std::shared_ptr<const Bytes> group, group_of(leaf));
      return sink.piece({group->data() + leaf.offset, static_cast<std::size_t>(leaf.size)});
    }
    return each_piece(leaf, 0, leaf.size, [&](std::span<const std::byte> piece) -> Status {
      while (!piece.empty()) {
        const auto now = piece.first(std::min(piece.size(), ReadContext::piece_size));
        STELE_TRY(sink.piece(now));
        piece = piece.subspan(now.size());
      }
      return {};
    });
  }

 private:
  bool is_small(std::uint64_t size) const noexcept {
    return size <= std::min<std::uint64_t>(largest_grouped, copy_size_ / 2);
  }

  struct Copy {
    Lease buffer;
    std::size_t size = 0;
  };

  template <class Take>
  Status each_piece(const Leaf& leaf, std::uint64_t offset, std::uint64_t size, Take take) {
    std::vector<Copy> ring;
    auto status = each_piece(leaf, offset, size, take, ring);
    if (!status) transfer_.cancel();  // the program may free the tensor
    return status;
  }

  /// Passes bytes of a leaf to `take`, in copies that overlap with it. `ring`: the copies in flight.
  template <class Take>
  Status each_piece(const Leaf& leaf, std::uint64_t offset, std::uint64_t size, Take take, std::vector<Copy>& ring) {
    std::size_t next = 0;  // the oldest copy
    std::uint64_t started = 0;
    const auto start = [&](Lease buffer) -> Status {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - started, copy_size_));
      const DeviceCopy copy{buffer.get(), leaf.from.data + offset + started, n, leaf.from.where};
      STELE_TRY(transfer_.from_device(buffer.get(), {&copy, 1}));
      started += n;
      Copy in_flight{std::move(buffer), n};
      if (next < ring.size() && ring[next].buffer.get() == nullptr) {
        ring[next] = std::move(in_flight);
      } else {
        ring.push_back(std::move(in_flight));
      }
      return {};
    };
    ring.reserve(transfer_.buffers());
    while (started < size && ring.size() < transfer_.buffers()) {
      STELE_TRY_ASSIGN(std::byte* const buffer, transfer_.acquire(ring.empty()));
      if (buffer == nullptr) break;
      STELE_TRY(start(Lease(transfer_, buffer)));
    }
    for (std::uint64_t taken = 0; taken < size;) {
      Copy& copy = ring[next];
      STELE_TRY(transfer_.wait(copy.buffer.get()));
      STELE_TRY(take(std::span<const std::byte>(copy.buffer.get(), copy.size)));
      taken += copy.size;
      Lease buffer = std::move(copy.buffer);
      if (started < size) STELE_TRY(start(std::move(buffer)));
      next = (next + 1) % ring.size();
    }
    return {};
  }

  /// Returns the bytes of the group of a small leaf.
  Result<std::shared_ptr<const Bytes>> group_of(const Leaf& leaf) {
    const Lock lock(mutex_);
    if (cached_ != nullptr && cached_group_ == leaf.group) return cached_;
    const Group& group = groups_[leaf.group];
    STELE_TRY_ASSIGN(std::byte* const buffer, transfer_.acquire(true));
    const Lease lease(transfer_, buffer);
    copies_.clear();
    for (std::uint32_t i = group.first; i < group.last; ++i) {
      const Leaf& member = leaves_[i];
      if (!is_small(member.size) || member.size == 0) continue;
      const auto size = static_cast<std::size_t>(member.size);
      copies_.push_back({buffer + member.offset, member.from.data, size, member.from.where});
    }
    auto copied = transfer_.from_device(buffer, copies_);
    if (copied) copied = transfer_.wait(buffer);
    if (!copied) {
      transfer_.cancel();
      return std::move(copied).error();
    }
    auto bytes = std::make_shared<Bytes>(static_cast<std::size_t>(group.size));
    std::memcpy(bytes->data(), buffer, bytes->size());
    cached_ = std::move(bytes);
    cached_group_ = leaf.group;
    return cached_;
  }

  Transfer& transfer_;
  std::size_t copy_size_;
  std::vector<Leaf> leaves_;
  std::vector<Group> groups_;
  Mutex mutex_;
  std::shared_ptr<const Bytes> cached_;  // the bytes of the last group
  std::uint32_t cached_group_ = 0;
  std::vector<DeviceCopy> copies_;
};

DeviceLeaves& leaves_at(const void* at) { return *static_cast<DeviceLeaves*>(const_cast<void*>(at)); }

const LeafOps device_leaf_ops{
    .read = [](const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
               ReadContext&) { return leaves_at(at).read(number, offset, out); },
    .stream = [](const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink,
                 ReadContext&) { return leaves_at(at).stream(number, sink); },
    .in_module = true,
};

}  // namespace

Result<Snapshot> read_through(const Snapshot& snapshot, Transfer* transfer) {
  std::shared_ptr<DeviceLeaves> devices;
  std::shared_ptr<SnapshotData> data;
  const auto& leaves = snapshot.data()->leaves;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Provider& provider = leaves[i].provider;
    const TensorOps* ops = module_tensor_ops(provider);
    if (ops == nullptr || ops->locations == nullptr) continue;
    const auto from = device_of(*ops, provider.at);
    if (!from || leaves[i].bytes == 0) continue;
    if (transfer == nullptr) {
      if (ops->read != nullptr) continue;
      return unreachable_device(from->where, true).path(snapshot.leaf(i).path());
    }
    if (devices == nullptr) {
      devices = std::make_shared<DeviceLeaves>(*transfer);
      data = derived_data(snapshot);
      data->keepers.push_back(devices);
      STELE_TRY(transfer->begin());
    }
    data->leaves[i].provider = {&device_leaf_ops, devices.get(), devices->size()};
    devices->add(*from, leaves[i].bytes);
  }
  if (data == nullptr) return snapshot;
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
