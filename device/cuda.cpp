// The driver API of CUDA, by stele's own declarations (source: "CUDA Driver API", docs.nvidia.com). Names with _v2 are
// those that CUDA's header gives to the functions since version 3.2 and 4.0.
#include <bit>
#include <cstdint>
#include <mutex>
#include <vector>

#include "api.hpp"

namespace stele::inline v0::detail::device {
namespace {

using Pointer = unsigned long long;  // CUdeviceptr

Pointer pointer(const std::byte* data) noexcept { return std::bit_cast<std::uintptr_t>(data); }

class Cuda final : public Api {
 public:
  Cuda() noexcept : Api(DeviceKind::cuda) {}
  ~Cuda() override {
    for (int i = 0; i < count_; ++i) {
      if (contexts_[static_cast<std::size_t>(i)] != nullptr) release_(device(i));
    }
  }

  Status bind(void* library, const std::string& name) {
    Symbols symbols(library);
    symbols.find(init_, "cuInit");
    symbols.find(count_devices_, "cuDeviceGetCount");
    symbols.find(get_device_, "cuDeviceGet");
    symbols.find(get_name_, "cuDeviceGetName");
    symbols.find(retain_, "cuDevicePrimaryCtxRetain");
    symbols.find(release_, "cuDevicePrimaryCtxRelease_v2");
    symbols.find(push_, "cuCtxPushCurrent_v2");
    symbols.find(pop_, "cuCtxPopCurrent_v2");
    symbols.find(allocate_, "cuMemAlloc_v2");
    symbols.find(free_, "cuMemFree_v2");
    symbols.find(allocate_host_, "cuMemHostAlloc");
    symbols.find(free_host_, "cuMemFreeHost");
    symbols.find(to_device_, "cuMemcpyHtoDAsync_v2");
    symbols.find(from_device_, "cuMemcpyDtoHAsync_v2");
    symbols.find(create_stream_, "cuStreamCreate");
    symbols.find(destroy_stream_, "cuStreamDestroy_v2");
    symbols.find(synchronize_, "cuStreamSynchronize");
    symbols.find(wait_, "cuStreamWaitEvent");
    symbols.find(create_event_, "cuEventCreate");
    symbols.find(destroy_event_, "cuEventDestroy_v2");
    symbols.find(record_, "cuEventRecord");
    symbols.find(query_, "cuEventQuery");
    symbols.find(synchronize_event_, "cuEventSynchronize");
    symbols.find(error_name_, "cuGetErrorName");
    STELE_TRY(symbols.complete(name));
    const int initialized = init_(0);
    if (initialized == no_device) return Error(Errc::not_found, "there is no device of CUDA").file(name);
    STELE_TRY(result(initialized, "cuInit"));
    int count = 0;
    STELE_TRY(result(count_devices_(&count), "cuDeviceGetCount"));
    if (count < 1) return Error(Errc::not_found, "there is no device of CUDA").file(name);
    devices_.resize(static_cast<std::size_t>(count));
    contexts_.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      STELE_TRY(result(get_device_(&devices_[static_cast<std::size_t>(i)], i), "cuDeviceGet"));
    }
    count_ = count;
    return {};
  }

  Result<std::string> name(int ordinal) override {
    char text[256] = {};
    STELE_TRY(result(get_name_(text, sizeof text - 1, device(ordinal)), "cuDeviceGetName"));
    return std::string(text);
  }
  Result<std::byte*> allocate(int ordinal, std::size_t size) override {
    Pointer data = 0;
    STELE_TRY(on(ordinal, "cuMemAlloc", [&] { return allocate_(&data, size); }));
    return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(data));
  }
  void free(int ordinal, std::byte* data) noexcept override {
    ignore(ordinal, [&] { return free_(pointer(data)); });
  }
  Result<std::byte*> allocate_host(int ordinal, std::size_t size) override {
    void* data = nullptr;
    STELE_TRY(on(ordinal, "cuMemHostAlloc", [&] { return allocate_host_(&data, size, portable); }));
    return static_cast<std::byte*>(data);
  }
  void free_host(int ordinal, std::byte* data) noexcept override {
    ignore(ordinal, [&] { return free_host_(data); });
  }
  Result<Handle> create_stream(int ordinal) override {
    Handle stream = nullptr;
    STELE_TRY(on(ordinal, "cuStreamCreate", [&] { return create_stream_(&stream, non_blocking); }));
    return stream;
  }
  void destroy_stream(int ordinal, Handle stream) noexcept override {
    ignore(ordinal, [&] { return destroy_stream_(stream); });
  }
  Status synchronize(int ordinal, Handle stream) override {
    return on(ordinal, "cuStreamSynchronize", [&] { return synchronize_(stream); });
  }
  Result<Handle> create_event(int ordinal) override {
    Handle event = nullptr;
    STELE_TRY(on(ordinal, "cuEventCreate", [&] { return create_event_(&event, disable_timing); }));
    return event;
  }
  void destroy_event(int ordinal, Handle event) noexcept override {
    ignore(ordinal, [&] { return destroy_event_(event); });
  }
  Status record(int ordinal, Handle event, Handle stream) override {
    return on(ordinal, "cuEventRecord", [&] { return record_(event, stream); });
  }
  Status wait(int ordinal, Handle stream, Handle event) override {
    return on(ordinal, "cuStreamWaitEvent", [&] { return wait_(stream, event, 0); });
  }
  Result<bool> query(int ordinal, Handle event) override {
    int code = 0;
    STELE_TRY(on(ordinal, "cuEventQuery", [&] {
      code = query_(event);
      return code == not_ready ? 0 : code;
    }));
    return code == 0;
  }
  Status synchronize_event(int ordinal, Handle event) override {
    return on(ordinal, "cuEventSynchronize", [&] { return synchronize_event_(event); });
  }
  Status copy_to_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) override {
    return on(ordinal, "cuMemcpyHtoDAsync", [&] { return to_device_(pointer(to), from, size, stream); });
  }
  Status copy_from_device(int ordinal, std::byte* to, const std::byte* from, std::size_t size, Handle stream) override {
    return on(ordinal, "cuMemcpyDtoHAsync", [&] { return from_device_(to, pointer(from), size, stream); });
  }

 private:
  int device(int ordinal) const noexcept { return devices_[static_cast<std::size_t>(ordinal)]; }
  Status result(int code, const char* function) const {
    if (code == 0) return {};
    const char* name = nullptr;
    error_name_(code, &name);
    return failed(function, code, name);
  }
  /// Makes the device's primary context current, which is also that of CUDA's runtime.
  Status push(int ordinal) {
    Handle context = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Handle& retained = contexts_[static_cast<std::size_t>(ordinal)];
      if (retained == nullptr) STELE_TRY(result(retain_(&retained, device(ordinal)), "cuDevicePrimaryCtxRetain"));
      context = retained;
    }
    return result(push_(context), "cuCtxPushCurrent");
  }
  template <class Call>
  Status on(int ordinal, const char* function, Call call) {
    STELE_TRY(push(ordinal));
    const int code = call();
    Handle context = nullptr;
    pop_(&context);
    return result(code, function);
  }
  /// Calls a function that frees something. Tries again if the context cannot be made current, because nothing else
  /// would free it.
  template <class Call>
  void ignore(int ordinal, Call call) noexcept {
    static_cast<void>(guarded([&]() -> Status {
      if (!push(ordinal)) STELE_TRY(push(ordinal));
      call();
      Handle context = nullptr;
      pop_(&context);
      return {};
    }));
  }

  std::vector<int> devices_;
  std::mutex mutex_;
  std::vector<Handle> contexts_;  // null: not retained yet

  int (*init_)(unsigned flags) = nullptr;
  int (*count_devices_)(int* count) = nullptr;
  int (*get_device_)(int* device, int ordinal) = nullptr;
  int (*get_name_)(char* name, int length, int device) = nullptr;
  int (*retain_)(Handle* context, int device) = nullptr;
  int (*release_)(int device) = nullptr;
  int (*push_)(Handle context) = nullptr;
  int (*pop_)(Handle* context) = nullptr;
  int (*allocate_)(Pointer* data, std::size_t size) = nullptr;
  int (*free_)(Pointer data) = nullptr;
  int (*allocate_host_)(void** data, std::size_t size, unsigned flags) = nullptr;
  int (*free_host_)(void* data) = nullptr;
  int (*to_device_)(Pointer to, const void* from, std::size_t size, Handle stream) = nullptr;
  int (*from_device_)(void* to, Pointer from, std::size_t size, Handle stream) = nullptr;
  int (*create_stream_)(Handle* stream, unsigned flags) = nullptr;
  int (*destroy_stream_)(Handle stream) = nullptr;
  int (*synchronize_)(Handle stream) = nullptr;
  int (*wait_)(Handle stream, Handle event, unsigned flags) = nullptr;
  int (*create_event_)(Handle* event, unsigned flags) = nullptr;
  int (*destroy_event_)(Handle event) = nullptr;
  int (*record_)(Handle event, Handle stream) = nullptr;
  int (*query_)(Handle event) = nullptr;
  int (*synchronize_event_)(Handle event) = nullptr;
  int (*error_name_)(int code, const char** name) = nullptr;
};

}  // namespace

Result<std::shared_ptr<Api>> bind_cuda(void* library, const std::string& name) {
  auto api = std::make_shared<Cuda>();
  STELE_TRY(api->bind(library, name));
  return std::shared_ptr<Api>(std::move(api));
}

}  // namespace stele::inline v0::detail::device
