// Collects the elements of tensors of devices in the buffers of a Transfer, and starts their copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stele/snapshot.hpp"
#include "stele/transfer.hpp"

namespace stele::inline v0::detail {

/// Memory of a device for all elements of a tensor.
struct DeviceTarget {
  std::byte* data = nullptr;
  Location where{};
  /// The block that it shares with neighbours: nothing else uses the bytes up to the next multiple of
  /// Stager::alignment. Null: the memory is the tensor's own.
  const void* block = nullptr;
};

/// The buffers of one thread. Small tensors share a buffer, and one copy if they are neighbours in a block of device
/// memory; a larger tensor goes through many buffers.
class Stager {
 public:
  /// Alignment of tensors, in buffers as in blocks of device memory.
  static constexpr std::size_t alignment = 256;

  explicit Stager(Transfer& transfer) : transfer_(transfer), size_(transfer.buffer_size()) {}
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;
  /// Drops bytes that flush() has not passed on.
  ~Stager() {
    if (buffer_ != nullptr) transfer_.release(buffer_);
  }

  std::size_t buffer_size() const noexcept { return size_; }
  /// Begins a tensor. The targets must remain until the Stager ends.
  void begin(std::span<const DeviceTarget> targets);
  /// Returns unused memory of a buffer, at least `size` bytes, which must not exceed the buffer. Errors: those of
  /// Transfer::acquire() and to_device().
  Result<std::span<std::byte>> room(std::size_t size);
  /// Adds bytes of the last room(), which are the next bytes of the tensor.
  void add(std::span<const std::byte> bytes);
  /// Starts the copies of all bytes that were added. Errors: those of Transfer::to_device().
  Status flush();

 private:
  bool continues(std::size_t target, const std::byte* from, const std::byte* to) const;

  Transfer& transfer_;
  std::size_t size_;
  std::byte* buffer_ = nullptr;
  std::size_t used_ = 0;
  std::vector<DeviceCopy> copies_;
  std::span<const DeviceTarget> targets_;  // targets of the tensor
  std::span<const DeviceTarget> last_;     // targets of the last copies
  std::uint64_t done_ = 0;                 // bytes of the tensor
};

/// Passes pieces of one tensor to a Stager.
class DeviceSink final : public PieceSink {
 public:
  DeviceSink(Stager& stager, std::span<const DeviceTarget> targets) : stager_(stager) { stager.begin(targets); }
  std::byte* place(std::uint64_t offset, std::size_t size) override;
  std::span<std::byte> room(std::size_t size) override;
  Status piece(std::span<const std::byte> bytes) override;

 private:
  Stager& stager_;
  // memory of the last place() or room(), without the bytes that were passed as pieces
  std::span<const std::byte> placed_;
  std::optional<Error> error_;  // error of place() or room()
};

}  // namespace stele::inline v0::detail
