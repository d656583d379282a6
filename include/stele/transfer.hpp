// Transfer: copies tensors between main memory and the memory of devices during saves and loads. The component `device`
// (stele/device.hpp) implements it for the drivers of CUDA and HIP (docs/guide/devices.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "stele/config.hpp"
#include "stele/location.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

/// Returns "host", "cuda:0", "hip:1".
STELE_EXPORT std::string to_string(Location where);

/// One copy between a buffer of a Transfer and a device.
struct DeviceCopy {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::size_t size = 0;
  Location where{};
};

/// A ring of buffers in main memory, from which and into which a device copies while the processor fills or reads other
/// buffers. Saves and loads read, check, convert and hash in these buffers; formats do not depend on devices. All
/// members but the destructor are thread-safe, and several saves and loads may share a Transfer. Members that return no
/// Status do not throw.
///
/// A load calls begin(); then, on any of its threads, acquire(), fills the buffer, to_device(), release(); at the end
/// finish(), or cancel() after an error. A save calls begin(), acquire(), from_device(), wait(), release(). A thread
/// that waits in acquire() holds no buffer, so one buffer is enough for any number of saves and loads.
class STELE_EXPORT Transfer {
 public:
  virtual ~Transfer();

  /// Returns the size of each buffer, in bytes; at least 4 KiB.
  virtual std::size_t buffer_size() const noexcept = 0;
  /// Returns the number of buffers.
  virtual unsigned buffers() const noexcept = 0;

  /// Prepares copies to the devices: later copies run after the work that the program has given to its stream so far.
  virtual Status begin() = 0;
  /// Returns a buffer that no copy uses, aligned to 256 bytes. If no buffer is free, waits for one, or returns nullptr
  /// if `wait` is false. Errors: io (the device failed; also a copy that was started earlier), out_of_memory.
  virtual Result<std::byte*> acquire(bool wait) = 0;
  /// Starts copies from an acquired buffer to devices. Errors: io, invalid_argument (a device that this Transfer does
  /// not have).
  virtual Status to_device(std::byte* buffer, std::span<const DeviceCopy> copies) = 0;
  /// Starts copies from devices to an acquired buffer. Errors: those of to_device().
  virtual Status from_device(std::byte* buffer, std::span<const DeviceCopy> copies) = 0;
  /// Waits until the copies of an acquired buffer have ended. Errors: io.
  virtual Status wait(std::byte* buffer) = 0;
  /// Returns a buffer, which may still have copies that run.
  virtual void release(std::byte* buffer) noexcept = 0;
  /// Ends the copies to the devices: waits until all have ended, or makes the program's stream wait for them, depending
  /// on the implementation's options. Errors: io (a copy failed).
  virtual Status finish() = 0;
  /// Waits until no copy runs, after an error of a save or load, whose memory may then be released.
  virtual void cancel() noexcept = 0;

  /// Returns the device for a tensor that is not on a device yet. `path`: its path in the module.
  virtual Location place(std::string_view path) = 0;
  /// Allocates device memory, aligned to 256 bytes; the last owner frees it. Errors: out_of_memory, io,
  /// invalid_argument.
  virtual Result<std::shared_ptr<std::byte>> allocate(Location where, std::size_t size) = 0;
  /// Allocates main memory that copy_from_devices() writes at full speed; the last owner frees it. Errors:
  /// out_of_memory, io.
  virtual Result<std::shared_ptr<std::byte>> allocate_host(std::size_t size) = 0;
  /// Copies from devices to memory of allocate_host(), and waits for it. Errors: those of to_device().
  virtual Status copy_from_devices(std::span<const DeviceCopy> copies) = 0;

 protected:
  Transfer() = default;
  Transfer(const Transfer&) = default;
  Transfer& operator=(const Transfer&) = default;
};

}  // namespace stele::inline v0
