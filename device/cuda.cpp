// The driver API of CUDA, by stele's own declarations (source: "CUDA Driver API", docs.nvidia.com). Names with _v2 are
// those that CUDA's header gives to the functions since version 3.2 and 4.0.
#include <mutex>
#include <vector>

#include "bound.hpp"

namespace stele::inline v0::detail::device {
namespace {

class Cuda final : public Bound<Cuda, unsigned long long, const void*> {
 public:
  Cuda() noexcept
      : Bound(DeviceKind::cuda, {.init = {"cuInit"},
                                 .count_devices = {"cuDeviceGetCount"},
                                 .get_name = {"cuDeviceGetName"},
                                 .allocate = {"cuMemAlloc_v2"},
                                 .free = {"cuMemFree_v2"},
                                 .allocate_host = {"cuMemHostAlloc"},
                                 .free_host = {"cuMemFreeHost"},
                                 .to_device = {"cuMemcpyHtoDAsync_v2"},
                                 .from_device = {"cuMemcpyDtoHAsync_v2"},
                                 .create_stream = {"cuStreamCreate"},
                                 .destroy_stream = {"cuStreamDestroy_v2"},
                                 .synchronize = {"cuStreamSynchronize"},
                                 .wait = {"cuStreamWaitEvent"},
                                 .create_event = {"cuEventCreate"},
                                 .destroy_event = {"cuEventDestroy_v2"},
                                 .record = {"cuEventRecord"},
                                 .query = {"cuEventQuery"},
                                 .synchronize_event = {"cuEventSynchronize"}}) {}
  ~Cuda() override {
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      if (contexts_[i] != nullptr) release_(devices_[i]);
    }
  }

  void find(Symbols& symbols) { symbols.find(get_device_, retain_, release_, push_, pop_, error_name_); }
  Status prepare(int count) {
    devices_.resize(static_cast<std::size_t>(count));
    contexts_.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      STELE_TRY(result(get_device_(&devices_[static_cast<std::size_t>(i)], i), get_device_.name));
    }
    return {};
  }
  int number(int ordinal) const noexcept { return devices_[static_cast<std::size_t>(ordinal)]; }
  const char* error_name(int code) const noexcept {
    const char* name = nullptr;
    error_name_(code, &name);
    return name;
  }
  /// Makes the device's primary context current, which CUDA's runtime uses, too.
  Result<Handle> enter(int ordinal) {
    Handle context = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Handle& retained = contexts_[static_cast<std::size_t>(ordinal)];
      if (retained == nullptr) STELE_TRY(result(retain_(&retained, number(ordinal)), retain_.name));
      context = retained;
    }
    STELE_TRY(result(push_(context), push_.name));
    return context;
  }
  void leave(Handle context) noexcept { pop_(&context); }

 private:
  std::vector<int> devices_;
  std::mutex mutex_;
  std::vector<Handle> contexts_;  // null: not retained yet

  Function<int(int* device, int ordinal)> get_device_{"cuDeviceGet"};
  Function<int(Handle* context, int device)> retain_{"cuDevicePrimaryCtxRetain"};
  Function<int(int device)> release_{"cuDevicePrimaryCtxRelease_v2"};
  Function<int(Handle context)> push_{"cuCtxPushCurrent_v2"};
  Function<int(Handle* context)> pop_{"cuCtxPopCurrent_v2"};
  Function<int(int code, const char** name)> error_name_{"cuGetErrorName"};
};

}  // namespace

Result<std::shared_ptr<Api>> bind_cuda(void* library, const std::string& name) {
  return bind_driver<Cuda>(library, name);
}

}  // namespace stele::inline v0::detail::device
