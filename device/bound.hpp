// CUDA and HIP have the same functions under different names: one implementation serves both drivers.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "api.hpp"

namespace stele::inline v0::detail::device {

/// The functions of a driver. `Pointer`: an address in the memory of a device; `From`: memory that is copied from.
template <class Pointer, class From>
struct Functions {
  Function<int(unsigned flags)> init;
  Function<int(int* count)> count_devices;
  Function<int(char* name, int length, int device)> get_name;
  Function<int(Pointer* data, std::size_t size)> allocate;
  Function<int(Pointer data)> free;
  Function<int(void** data, std::size_t size, unsigned flags)> allocate_host;
  Function<int(void* data)> free_host;
  Function<int(Pointer to, From from, std::size_t size, Handle stream)> to_device;
  Function<int(void* to, Pointer from, std::size_t size, Handle stream)> from_device;
  Function<int(Handle* stream, unsigned flags)> create_stream;
  Function<int(Handle stream)> destroy_stream;
  Function<int(Handle stream)> synchronize;
  Function<int(Handle stream, Handle event, unsigned flags)> wait;
  Function<int(Handle* event, unsigned flags)> create_event;
  Function<int(Handle event)> destroy_event;
  Function<int(Handle event, Handle stream)> record;
  Function<int(Handle event)> query;
  Function<int(Handle event)> synchronize_event;
};

/// A driver with these functions. `Driver` derives from it, and has
///   find(Symbols&)                    finds its other functions
///   prepare(int count)                called once, with the number of devices
///   number(int ordinal)               the driver's number of a device
///   enter(int ordinal), leave(state)  makes a device current for the thread; the state that enter() returns is
///   restored error_name(int code)
template <class Driver, class Pointer, class From>
class Bound : public Api {
 public:
  Status bind(void* library, const std::string& file) {
    Symbols symbols(library);
    symbols.find(f_.init, f_.count_devices, f_.get_name, f_.allocate, f_.free, f_.allocate_host, f_.free_host,
                 f_.to_device, f_.from_device, f_.create_stream, f_.destroy_stream, f_.synchronize, f_.wait,
                 f_.create_event, f_.destroy_event, f_.record, f_.query, f_.synchronize_event);
    self().find(symbols);
    STELE_TRY(symbols.complete(file));
    int count = 0;
    const int initialized = f_.init(0U);
    const int counted = initialized == 0 ? f_.count_devices(&count) : 0;
    if (initialized == no_device || counted == no_device || (initialized == 0 && counted == 0 && count < 1)) {
      return Error(Errc::not_found, "the driver has no device").file(file);
    }
    STELE_TRY(result(initialized, f_.init.name));
    STELE_TRY(result(counted, f_.count_devices.name));
    STELE_TRY(self().prepare(count));
    count_ = count;
    return {};
  }

  Result<std::string> name(int ordinal) override {
    char text[256] = {};
    STELE_TRY(result(f_.get_name(text, static_cast<int>(sizeof text) - 1, self().number(ordinal)), f_.get_name.name));
    return std::string(text);
  }
  Result<std::byte*> allocate(int ordinal, std::size_t size) override {
    Pointer data{};
    STELE_TRY(call(ordinal, f_.allocate, &data, size));
    if constexpr (std::is_pointer_v<Pointer>) {
      return static_cast<std::byte*>(data);
    } else {
      return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(data));
    }
  }
  void free(int ordinal, std::byte* data) noexcept override { end(ordinal, f_.free, pointer(data)); }
  Result<std::byte*> allocate_host(int ordinal, std::size_t size) override {
    void* data = nullptr;
    STELE_TRY(call(ordinal, f_.allocate_host, &data, size, portable));
    return static_cast<std::byte*>(data);
  }
  void free_host(int ordinal, std::byte* data) noexcept override { end(ordinal, f_.free_host, data); }
  Result<Handle> create_stream(int ordinal) override {
    Handle stream = nullptr;
    STELE_TRY(call(ordinal, f_.create_stream, &stream, non_blocking));
    return stream;
  }
  void destroy_stream(int ordinal, Handle stream) noexcept override { end(ordinal, f_.destroy_stream, stream); }
  Status synchronize(int ordinal, Handle stream) override { return call(ordinal, f_.synchronize, stream); }
  Result<Handle> create_event(int ordinal) override {
    Handle event = nullptr;
    STELE_TRY(call(ordinal, f_.create_event, &event, disable_timing));
    return event;
  }
  void destroy_event(int ordinal, Handle event) noexcept override { end(ordinal, f_.destroy_event, event); }
  Status record(int ordinal, Handle event, Handle stream) override { return call(ordinal, f_.record, event, stream); }
  Status wait(int ordinal, Handle stream, Handle event) override { return call(ordinal, f_.wait, stream, event, 0U); }
  Result<bool> query(int ordinal, Handle event) override {
    STELE_TRY_ASSIGN(const int code, code_of(ordinal, f_.query, event));
    if (code != not_ready) STELE_TRY(result(code, f_.query.name));
    return code == 0;
  }
  Status synchronize_event(int ordinal, Handle event) override { return call(ordinal, f_.synchronize_event, event); }
  Status copy_to_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) override {
    // The parameter of HIP was not const before ROCm 6.3; the function only reads.
    return call(ordinal, f_.to_device, pointer(to), static_cast<From>(const_cast<std::byte*>(from)), size, stream);
  }
  Status copy_from_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) override {
    return call(ordinal, f_.from_device, to, pointer(from), size, stream);
  }

 protected:
  Bound(DeviceKind kind, const Functions<Pointer, From>& functions) noexcept : Api(kind), f_(functions) {}

  Status result(int code, const char* function) const {
    return code == 0 ? Status() : failed(function, code, self().error_name(code));
  }

 private:
  Driver& self() noexcept { return static_cast<Driver&>(*this); }
  const Driver& self() const noexcept { return static_cast<const Driver&>(*this); }
  static Pointer pointer(const std::byte* data) noexcept {
    if constexpr (std::is_pointer_v<Pointer>) {
      return const_cast<std::byte*>(data);
    } else {
      return std::bit_cast<std::uintptr_t>(data);
    }
  }
  /// Calls a function while the device is current, and returns its code.
  template <class F, class... Arguments>
  Result<int> code_of(int ordinal, const Function<F>& function, Arguments... arguments) {
    STELE_TRY_ASSIGN(auto state, self().enter(ordinal));
    const int code = function(arguments...);
    self().leave(state);
    return code;
  }
  template <class F, class... Arguments>
  Status call(int ordinal, const Function<F>& function, Arguments... arguments) {
    STELE_TRY_ASSIGN(const int code, code_of(ordinal, function, arguments...));
    return result(code, function.name);
  }
  /// Calls a function that frees something. Tries again if the device cannot be made current, because nothing else
  /// would free it.
  template <class F, class... Arguments>
  void end(int ordinal, const Function<F>& function, Arguments... arguments) noexcept {
    static_cast<void>(guarded([&]() -> Status {
      if (!code_of(ordinal, function, arguments...)) STELE_TRY(code_of(ordinal, function, arguments...));
      return {};
    }));
  }

  Functions<Pointer, From> f_;
};

/// Binds a driver.
template <class Driver>
Result<std::shared_ptr<Api>> bind_driver(void* library, const std::string& file) {
  auto api = std::make_shared<Driver>();
  STELE_TRY(api->bind(library, file));
  return std::shared_ptr<Api>(std::move(api));
}

}  // namespace stele::inline v0::detail::device
