#include "module/device_memory.hpp"

#include <algorithm>

#include "snapshot/device_leaves.hpp"

namespace stele::inline v0::detail {

Status DeviceMemory::give(const TensorOps& ops, void* object, const void* like, const Shape& shape, DType dtype,
                          std::size_t bytes, const std::string& path) {
  std::vector<Location> wanted;
  each_location(ops, like != nullptr ? like : object, [&](Location where, std::byte*) { wanted.push_back(where); });
  for (Location where : wanted) {
    if (where.ordinal < 0) where = transfer_->place(path);
    std::shared_ptr<std::byte> block;
    STELE_TRY_ASSIGN(std::byte* const data, take(where, bytes, block));
    ops.part_of_device(object, data, shape, dtype, std::move(block), where);
  }
  return {};
}

Result<std::byte*> DeviceMemory::take(Location where, std::size_t bytes, std::shared_ptr<std::byte>& block) {
  const std::size_t n =
      (std::max<std::size_t>(bytes, 1) + Stager::alignment - 1) / Stager::alignment * Stager::alignment;
  const Key key{where.kind, where.ordinal};
  const auto allocate = [&](std::size_t size) -> Status {
    STELE_TRY_ASSIGN(block, transfer_->allocate(where, size));
    blocks_[{key, block.get()}] = size;
    return {};
  };
  if (n >= large) {
    STELE_TRY(allocate(n));
    return block.get();
  }
  Block& open = open_[key];
  if (n > open.size - open.used) {
    // Blocks double, so that a small module takes little.
    const std::size_t size = std::max(n, std::clamp<std::size_t>(2 * open.size, block_size / 32, block_size));
    STELE_TRY(allocate(size));
    open = {block, size, 0};
  }
  block = open.memory;
  std::byte* const data = open.memory.get() + open.used;
  open.used += n;
  return data;
}

void DeviceMemory::add_targets(const TensorOps& ops, void* object, std::vector<DeviceTarget>& targets) const {
  each_location(ops, object, [&](Location where, std::byte* data) {
    const Key key{where.kind, where.ordinal};
    auto block = blocks_.upper_bound({key, data});
    const void* in = nullptr;
    if (block != blocks_.begin()) {
      --block;
      const auto& [begin, size] = *block;
      if (begin.first == key && data < begin.second + size) in = begin.second;
    }
    targets.push_back({data, where, in});
  });
}

}  // namespace stele::inline v0::detail
