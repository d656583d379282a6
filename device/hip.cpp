// The runtime API of HIP, by stele's own declarations (source: "HIP Runtime API Reference", rocm.docs.amd.com).
#include <vector>

#include "api.hpp"

namespace stele::inline v0::detail::device {
namespace {

class Hip final : public Api {
 public:
  Hip() noexcept : Api(DeviceKind::hip) {}

  Status bind(void* library, const std::string& name) {
    Symbols symbols(library);
    symbols.find(init_, "hipInit");
    symbols.find(count_devices_, "hipGetDeviceCount");
    symbols.find(get_name_, "hipDeviceGetName");
    symbols.find(set_device_, "hipSetDevice");
    symbols.find(get_device_, "hipGetDevice");
    symbols.find(allocate_, "hipMalloc");
    symbols.find(free_, "hipFree");
    symbols.find(allocate_host_, "hipHostMalloc");
    symbols.find(free_host_, "hipHostFree");
    symbols.find(to_device_, "hipMemcpyHtoDAsync");
    symbols.find(from_device_, "hipMemcpyDtoHAsync");
    symbols.find(create_stream_, "hipStreamCreateWithFlags");
    symbols.find(destroy_stream_, "hipStreamDestroy");
    symbols.find(synchronize_, "hipStreamSynchronize");
    symbols.find(wait_, "hipStreamWaitEvent");
    symbols.find(create_event_, "hipEventCreateWithFlags");
    symbols.find(destroy_event_, "hipEventDestroy");
    symbols.find(record_, "hipEventRecord");
    symbols.find(query_, "hipEventQuery");
    symbols.find(synchronize_event_, "hipEventSynchronize");
    symbols.find(error_name_, "hipGetErrorName");
    STELE_TRY(symbols.complete(name));
    const int initialized = init_(0);
    if (initialized == no_device) return Error(Errc::not_found, "there is no device of HIP").file(name);
    STELE_TRY(result(initialized, "hipInit"));
    int count = 0;
    const int counted = count_devices_(&count);
    if (counted == no_device || (counted == 0 && count < 1)) {
      return Error(Errc::not_found, "there is no device of HIP").file(name);
    }
    STELE_TRY(result(counted, "hipGetDeviceCount"));
    count_ = count;
    return {};
  }

  Result<std::string> name(int ordinal) override {
    char text[256] = {};
    STELE_TRY(result(get_name_(text, sizeof text - 1, ordinal), "hipDeviceGetName"));
    return std::string(text);
  }
  Result<std::byte*> allocate(int ordinal, std::size_t size) override {
    void* data = nullptr;
    STELE_TRY(on(ordinal, "hipMalloc", [&] { return allocate_(&data, size); }));
    return static_cast<std::byte*>(data);
  }
  void free(int ordinal, std::byte* data) noexcept override {
    ignore(ordinal, [&] { return free_(data); });
  }
  Result<std::byte*> allocate_host(int ordinal, std::size_t size) override {
    void* data = nullptr;
    STELE_TRY(on(ordinal, "hipHostMalloc", [&] { return allocate_host_(&data, size, portable); }));
    return static_cast<std::byte*>(data);
  }
  void free_host(int ordinal, std::byte* data) noexcept override {
    ignore(ordinal, [&] { return free_host_(data); });
  }
  Result<Handle> create_stream(int ordinal) override {
    Handle stream = nullptr;
    STELE_TRY(on(ordinal, "hipStreamCreateWithFlags", [&] { return create_stream_(&stream, non_blocking); }));
    return stream;
  }
  void destroy_stream(int ordinal, Handle stream) noexcept override {
    ignore(ordinal, [&] { return destroy_stream_(stream); });
  }
  Status synchronize(int ordinal, Handle stream) override {
    return on(ordinal, "hipStreamSynchronize", [&] { return synchronize_(stream); });
  }
  Result<Handle> create_event(int ordinal) override {
    Handle event = nullptr;
    STELE_TRY(on(ordinal, "hipEventCreateWithFlags", [&] { return create_event_(&event, disable_timing); }));
    return event;
  }
  void destroy_event(int ordinal, Handle event) noexcept override {
    ignore(ordinal, [&] { return destroy_event_(event); });
  }
  Status record(int ordinal, Handle event, Handle stream) override {
    return on(ordinal, "hipEventRecord", [&] { return record_(event, stream); });
  }
  Status wait(int ordinal, Handle stream, Handle event) override {
    return on(ordinal, "hipStreamWaitEvent", [&] { return wait_(stream, event, 0); });
  }
  Result<bool> query(int ordinal, Handle event) override {
    int code = 0;
    STELE_TRY(on(ordinal, "hipEventQuery", [&] {
      code = query_(event);
      return code == not_ready ? 0 : code;
    }));
    return code == 0;
  }
  Status synchronize_event(int ordinal, Handle event) override {
    return on(ordinal, "hipEventSynchronize", [&] { return synchronize_event_(event); });
  }
  Status copy_to_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) override {
    // The parameter was not const before ROCm 6.3; the function only reads.
    return on(ordinal, "hipMemcpyHtoDAsync",
              [&] { return to_device_(to, const_cast<std::byte*>(from), size, stream); });
  }
  Status copy_from_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) override {
    return on(ordinal, "hipMemcpyDtoHAsync",
              [&] { return from_device_(to, const_cast<std::byte*>(from), size, stream); });
  }

 private:
  Status result(int code, const char* function) const {
    return code == 0 ? Status() : failed(function, code, error_name_(code));
  }
  /// Makes the device that of the calling thread, and returns the previous one. HIP's contexts are deprecated.
  Result<int> enter(int ordinal) {
    int before = 0;
    STELE_TRY(result(get_device_(&before), "hipGetDevice"));
    if (before != ordinal) STELE_TRY(result(set_device_(ordinal), "hipSetDevice"));
    return before;
  }
  void leave(int ordinal, int before) noexcept {
    if (before != ordinal) set_device_(before);
  }
  template <class Call>
  Status on(int ordinal, const char* function, Call call) {
    STELE_TRY_ASSIGN(const int before, enter(ordinal));
    const int code = call();
    leave(ordinal, before);
    return result(code, function);
  }
  /// Calls a function that frees something. Tries again if the device cannot be selected, because nothing else would
  /// free it.
  template <class Call>
  void ignore(int ordinal, Call call) noexcept {
    static_cast<void>(guarded([&]() -> Status {
      auto before = enter(ordinal);
      if (!before) before = enter(ordinal);
      if (!before) return std::move(before).error();
      call();
      leave(ordinal, *before);
      return {};
    }));
  }

  int (*init_)(unsigned flags) = nullptr;
  int (*count_devices_)(int* count) = nullptr;
  int (*get_name_)(char* name, int length, int device) = nullptr;
  int (*set_device_)(int device) = nullptr;
  int (*get_device_)(int* device) = nullptr;
  int (*allocate_)(void** data, std::size_t size) = nullptr;
  int (*free_)(void* data) = nullptr;
  int (*allocate_host_)(void** data, std::size_t size, unsigned flags) = nullptr;
  int (*free_host_)(void* data) = nullptr;
  int (*to_device_)(void* to, void* from, std::size_t size, Handle stream) = nullptr;
  int (*from_device_)(void* to, void* from, std::size_t size, Handle stream) = nullptr;
  int (*create_stream_)(Handle* stream, unsigned flags) = nullptr;
  int (*destroy_stream_)(Handle stream) = nullptr;
  int (*synchronize_)(Handle stream) = nullptr;
  int (*wait_)(Handle stream, Handle event, unsigned flags) = nullptr;
  int (*create_event_)(Handle* event, unsigned flags) = nullptr;
  int (*destroy_event_)(Handle event) = nullptr;
  int (*record_)(Handle event, Handle stream) = nullptr;
  int (*query_)(Handle event) = nullptr;
  int (*synchronize_event_)(Handle event) = nullptr;
  const char* (*error_name_)(int code) = nullptr;
};

}  // namespace

Result<std::shared_ptr<Api>> bind_hip(void* library, const std::string& name) {
  auto api = std::make_shared<Hip>();
  STELE_TRY(api->bind(library, name));
  return std::shared_ptr<Api>(std::move(api));
}

}  // namespace stele::inline v0::detail::device
