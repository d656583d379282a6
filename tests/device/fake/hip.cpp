// The functions of HIP that stele binds, with the types of hip_runtime_api.h (6.2), over the fake engine.
#include <cstring>
#include <string>

#include "engine.hpp"

namespace stele_fake {

const Flavour flavour = {
    .contexts = false, .version = 60241133, .device_name = "Fake HIP device", .name_of_error = "hipGetErrorName"};

namespace {
Engine& engine() { return Engine::get(); }
}  // namespace

}  // namespace stele_fake

using namespace stele_fake;

using hipError_t = int;  // an enum
using hipDevice_t = int;
using hipDeviceptr_t = void*;
using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;

namespace {
std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
}  // namespace

STELE_FAKE_EXPORT hipError_t hipInit(unsigned int flags) {
  return engine().enter({"hipInit"}, [&] { return flags != 0 ? code::invalid_value : engine().initialize(); });
}

STELE_FAKE_EXPORT hipError_t hipDriverGetVersion(int* version) {
  return engine().enter({"hipDriverGetVersion"}, [&] {
    if (version == nullptr) return code::invalid_value;
    *version = engine().version();
    return code::success;
  });
}

STELE_FAKE_EXPORT hipError_t hipGetDeviceCount(int* count) {
  return engine().enter({"hipGetDeviceCount"}, [&] {
    if (count == nullptr) return code::invalid_value;
    *count = engine().devices();
    return *count == 0 ? code::no_device : code::success;
  });
}

STELE_FAKE_EXPORT hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
  return engine().enter({"hipDeviceGetName"}, [&] {
    if (name == nullptr || length <= 0) return code::invalid_value;
    Device* found = nullptr;
    if (const Code failed = engine().device(device, found); failed != code::success) return failed;
    const std::string text = std::string(flavour.device_name) + ' ' + std::to_string(device);
    const std::size_t part = std::min(text.size(), static_cast<std::size_t>(length) - 1);
    std::memcpy(name, text.data(), part);
    name[part] = '\0';
    return code::success;
  });
}

STELE_FAKE_EXPORT hipError_t hipSetDevice(int device) {
  return engine().enter({"hipSetDevice"}, [&] { return engine().set_device(device); });
}

STELE_FAKE_EXPORT hipError_t hipGetDevice(int* device) {
  return engine().enter({"hipGetDevice"}, [&] {
    if (device == nullptr) return code::invalid_value;
    *device = engine().current_device();
    return code::success;
  });
}

STELE_FAKE_EXPORT hipError_t hipMalloc(void** out, std::size_t size) {
  return engine().enter({"hipMalloc"}, [&] {
    if (out == nullptr) return code::invalid_value;
    if (size == 0) {
      *out = nullptr;
      return code::success;
    }
    std::uint64_t address = 0;
    const Code result = engine().allocate_device(size, address);
    if (result == code::success) *out = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
    return result;
  });
}

STELE_FAKE_EXPORT hipError_t hipFree(void* memory) {
  return engine().enter({.name = "hipFree", .always = true},
                        [&] { return memory == nullptr ? code::success : engine().free_device(address_of(memory)); });
}

STELE_FAKE_EXPORT hipError_t hipHostMalloc(void** out, std::size_t size, unsigned int flags) {
  return engine().enter({"hipHostMalloc"}, [&] {
    // portable, mapped, write-combined, NUMA of the user, coherent, not coherent
    constexpr unsigned known = 7U | 0xE000'0000U;
    if (out == nullptr || (flags & ~known) != 0) return code::invalid_value;
    if (size == 0) {
      *out = nullptr;
      return code::success;
    }
    return engine().allocate_host(size, *out);
  });
}

STELE_FAKE_EXPORT hipError_t hipHostFree(void* memory) {
  return engine().enter({.name = "hipHostFree", .always = true},
                        [&] { return memory == nullptr ? code::success : engine().free_host(memory); });
}

STELE_FAKE_EXPORT hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, const void* from, std::size_t size,
                                                hipStream_t stream) {
  return engine().enter({"hipMemcpyHtoDAsync"},
                        [&] { return engine().copy_to_device(address_of(to), from, size, stream); });
}

STELE_FAKE_EXPORT hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, std::size_t size, hipStream_t stream) {
  return engine().enter({"hipMemcpyDtoHAsync"},
                        [&] { return engine().copy_from_device(to, address_of(from), size, stream); });
}

STELE_FAKE_EXPORT hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
  return engine().enter({"hipStreamCreateWithFlags"}, [&] {
    if (stream == nullptr || flags > 1) return code::invalid_value;
    void* out = nullptr;
    const Code result = engine().create_stream(flags == 0, out);
    if (result == code::success) *stream = static_cast<hipStream_t>(out);
    return result;
  });
}

STELE_FAKE_EXPORT hipError_t hipStreamDestroy(hipStream_t stream) {
  return engine().enter({.name = "hipStreamDestroy", .always = true}, [&] { return engine().destroy_stream(stream); });
}

STELE_FAKE_EXPORT hipError_t hipStreamSynchronize(hipStream_t stream) {
  return engine().enter({.name = "hipStreamSynchronize", .always = true},
                        [&] { return engine().synchronize_stream(stream); });
}

STELE_FAKE_EXPORT hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
  return engine().enter({"hipStreamWaitEvent"},
                        [&] { return flags != 0 ? code::invalid_value : engine().wait_event(stream, event); });
}

STELE_FAKE_EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return engine().enter({"hipEventCreateWithFlags"}, [&] {
    // blocking sync 1, without timing 2, interprocess 4, and three on fences
    constexpr unsigned known = 7U | 0xE000'0000U;
    if (event == nullptr || (flags & ~known) != 0 || (flags & 6U) == 4) return code::invalid_value;
    void* out = nullptr;
    const Code result = engine().create_event(out);
    if (result == code::success) *event = static_cast<hipEvent_t>(out);
    return result;
  });
}

STELE_FAKE_EXPORT hipError_t hipEventDestroy(hipEvent_t event) {
  return engine().enter({.name = "hipEventDestroy", .always = true}, [&] { return engine().destroy_event(event); });
}

STELE_FAKE_EXPORT hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return engine().enter({"hipEventRecord"}, [&] { return engine().record_event(event, stream); });
}

STELE_FAKE_EXPORT hipError_t hipEventSynchronize(hipEvent_t event) {
  return engine().enter({.name = "hipEventSynchronize", .always = true},
                        [&] { return engine().synchronize_event(event); });
}

STELE_FAKE_EXPORT hipError_t hipEventQuery(hipEvent_t event) {
  return engine().enter({"hipEventQuery"}, [&] { return engine().query_event(event); });
}

STELE_FAKE_EXPORT const char* hipGetErrorName(hipError_t error) {
  engine().enter({"hipGetErrorName"}, [] { return code::success; });
  switch (error) {
    case code::success:
      return "hipSuccess";
    case code::invalid_value:
      return "hipErrorInvalidValue";
    case code::out_of_memory:
      return "hipErrorOutOfMemory";
    case code::not_initialized:
      return "hipErrorNotInitialized";
    case code::invalid_device_pointer:
      return "hipErrorInvalidDevicePointer";
    case code::no_device:
      return "hipErrorNoDevice";
    case code::invalid_device:
      return "hipErrorInvalidDevice";
    case code::invalid_context:
      return "hipErrorInvalidContext";
    case code::invalid_handle:
      return "hipErrorInvalidHandle";
    case code::not_ready:
      return "hipErrorNotReady";
    case code::illegal_address:
      return "hipErrorIllegalAddress";
    case code::launch_timeout:
      return "hipErrorLaunchTimeOut";
    case code::context_is_destroyed:
      return "hipErrorContextIsDestroyed";
    case code::launch_failed:
      return "hipErrorLaunchFailure";
    case code::not_supported:
      return "hipErrorNotSupported";
    default:
      return "hipErrorUnknown";
  }
}
