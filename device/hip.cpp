// The runtime API of HIP, by stele's own declarations (source: "HIP Runtime API Reference", rocm.docs.amd.com).
#include "bound.hpp"

namespace stele::inline v0::detail::device {
namespace {

class Hip final : public Bound<Hip, void*, void*> {
 public:
  Hip() noexcept
      : Bound(DeviceKind::hip, {.init = {"hipInit"},
                                .count_devices = {"hipGetDeviceCount"},
                                .get_name = {"hipDeviceGetName"},
                                .allocate = {"hipMalloc"},
                                .free = {"hipFree"},
                                .allocate_host = {"hipHostMalloc"},
                                .free_host = {"hipHostFree"},
                                .to_device = {"hipMemcpyHtoDAsync"},
                                .from_device = {"hipMemcpyDtoHAsync"},
                                .create_stream = {"hipStreamCreateWithFlags"},
                                .destroy_stream = {"hipStreamDestroy"},
                                .synchronize = {"hipStreamSynchronize"},
                                .wait = {"hipStreamWaitEvent"},
                                .create_event = {"hipEventCreateWithFlags"},
                                .destroy_event = {"hipEventDestroy"},
                                .record = {"hipEventRecord"},
                                .query = {"hipEventQuery"},
                                .synchronize_event = {"hipEventSynchronize"}}) {}

  void find(Symbols& symbols) { symbols.find(set_device_, get_device_, error_name_); }
  static Status prepare(int) { return {}; }
  static int number(int ordinal) noexcept { return ordinal; }
  const char* error_name(int code) const noexcept { return error_name_(code); }
  /// The device of the calling thread, now and before. HIP's contexts are deprecated.
  struct Current {
    int now, before;
  };
  Result<Current> enter(int ordinal) {
    Current current{ordinal, 0};
    STELE_TRY(result(get_device_(&current.before), get_device_.name));
    if (current.before != ordinal) STELE_TRY(result(set_device_(ordinal), set_device_.name));
    return current;
  }
  void leave(Current current) noexcept {
    if (current.before != current.now) set_device_(current.before);
  }

 private:
  Function<int(int device)> set_device_{"hipSetDevice"};
  Function<int(int* device)> get_device_{"hipGetDevice"};
  Function<const char*(int code)> error_name_{"hipGetErrorName"};
};

}  // namespace

Result<std::shared_ptr<Api>> bind_hip(void* library, const std::string& name) {
  return bind_driver<Hip>(library, name);
}

}  // namespace stele::inline v0::detail::device
