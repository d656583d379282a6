// The functions of a driver of devices that stele calls: one interface for CUDA and HIP.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "stele/location.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::device {

/// A stream or event of the driver.
using Handle = void*;

/// A bound driver. Every call makes the device current for its duration only. Thread-safe. Errors: io, with the
/// driver's name of the error; out_of_memory.
class Api {
 public:
  virtual ~Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  DeviceKind kind() const noexcept { return kind_; }
  int count() const noexcept { return count_; }
  /// Errors: invalid_argument (no such device).
  Status check(Location where) const;

  virtual Result<std::string> name(int ordinal) = 0;
  virtual Result<std::byte*> allocate(int ordinal, std::size_t size) = 0;
  virtual void free(int ordinal, std::byte* data) noexcept = 0;
  /// Page-locked main memory, for all devices; `ordinal` is any of them.
  virtual Result<std::byte*> allocate_host(int ordinal, std::size_t size) = 0;
  virtual void free_host(int ordinal, std::byte* data) noexcept = 0;
  /// A stream that does not wait for the default stream.
  virtual Result<Handle> create_stream(int ordinal) = 0;
  virtual void destroy_stream(int ordinal, Handle stream) noexcept = 0;
  virtual Status synchronize(int ordinal, Handle stream) = 0;
  /// An event without a time.
  virtual Result<Handle> create_event(int ordinal) = 0;
  virtual void destroy_event(int ordinal, Handle event) noexcept = 0;
  virtual Status record(int ordinal, Handle event, Handle stream) = 0;
  /// Lets later work of the stream wait for the event, which may be of another device.
  virtual Status wait(int ordinal, Handle stream, Handle event) = 0;
  /// Returns true if the event has happened.
  virtual Result<bool> query(int ordinal, Handle event) = 0;
  virtual Status synchronize_event(int ordinal, Handle event) = 0;
  virtual Status copy_to_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) = 0;
  virtual Status copy_from_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size,
                                  Handle stream) = 0;

 protected:
  // Numbers that HIP has taken over from CUDA.
  static constexpr unsigned non_blocking = 1;    // CU_STREAM_NON_BLOCKING, hipStreamNonBlocking
  static constexpr unsigned disable_timing = 2;  // CU_EVENT_DISABLE_TIMING, hipEventDisableTiming
  static constexpr unsigned portable = 1;        // CU_MEMHOSTALLOC_PORTABLE, hipHostMallocPortable
  static constexpr int out_of_memory = 2;        // CUDA_ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory
  static constexpr int no_device = 100;          // CUDA_ERROR_NO_DEVICE, hipErrorNoDevice
  static constexpr int not_ready = 600;          // CUDA_ERROR_NOT_READY, hipErrorNotReady

  explicit Api(DeviceKind kind) noexcept : kind_(kind) {}
  /// Returns the error of a call.
  static Error failed(const char* function, int code, const char* name);

  DeviceKind kind_;
  int count_ = 0;
};

/// Bind the functions of a library. Errors: not_found (no device), unsupported (a function is missing), io.
Result<std::shared_ptr<Api>> bind_cuda(void* library, const std::string& name);
Result<std::shared_ptr<Api>> bind_hip(void* library, const std::string& name);

/// A function of a driver, once it has been found.
template <class F>
struct Function {
  const char* name;
  F* address = nullptr;

  template <class... Arguments>
  auto operator()(Arguments... arguments) const {
    return address(arguments...);
  }
};

/// Finds functions by name, and notes the first that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) noexcept : library_(library) {}
  template <class... F>
  void find(Function<F>&... functions) {
    (find_one(functions), ...);
  }
  /// Errors: unsupported.
  Status complete(const std::string& library) const;

 private:
  void* at(const char* name) const noexcept;
  template <class F>
  void find_one(Function<F>& function) {
    function.address = reinterpret_cast<F*>(at(function.name));
    if (function.address == nullptr && missing_ == nullptr) missing_ = function.name;
  }

  void* library_;
  const char* missing_ = nullptr;
};

}  // namespace stele::inline v0::detail::device
