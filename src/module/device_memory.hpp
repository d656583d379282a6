// Memory of devices for the tensors of a load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "snapshot/stager.hpp"
#include "stele/detail/type_info.hpp"

namespace stele::inline v0::detail {

/// Allocates memory for many tensors in one block, because an allocation takes a driver longer than copying a small
/// tensor.
class DeviceMemory {
 public:
  // Bounds the memory that a single remaining tensor keeps alive.
  static constexpr std::size_t block_size = std::size_t{32} << 20;
  // Minimum size of a tensor that gets a separate block.
  static constexpr std::size_t large = std::size_t{16} << 20;

  /// `transfer` may be null if give() is not called.
  explicit DeviceMemory(Transfer* transfer) noexcept : transfer_(transfer) {}

  /// Gives a tensor memory at each of the locations that it wants; `like`, if not null, is another tensor that has
  /// them. `path` is asked for only by Transfer::place(). Errors: those of Transfer::allocate(), invalid_argument.
  Status give(const TensorOps& ops, void* object, const void* like, const Shape& shape, DType dtype, std::size_t bytes,
              const std::string& path);
  /// Appends the locations of a tensor that has memory.
  void add_targets(const TensorOps& ops, void* object, std::vector<DeviceTarget>& targets) const;

 private:
  using Key = std::tuple<DeviceKind, std::int32_t>;
  struct Block {
    std::shared_ptr<std::byte> memory;
    std::size_t size = 0, used = 0;
  };
  Result<std::byte*> take(Location where, std::size_t bytes, std::shared_ptr<std::byte>& block);

  Transfer* transfer_;
  std::map<Key, Block> open_;
  std::map<std::pair<Key, const std::byte*>, std::size_t> blocks_;  // begin and size of each block
};

}  // namespace stele::inline v0::detail
