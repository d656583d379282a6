// The functions of CUDA's driver API that stele binds, with the types of cuda.h (13.5), over the fake engine.
#include <cstring>
#include <string>

#include "engine.hpp"

namespace stele_fake {

const Flavour flavour = {
    .contexts = true, .version = 12040, .device_name = "Fake CUDA device", .name_of_error = "cuGetErrorName"};

namespace {

// A CUdevice is a handle, and need not be the ordinal.
constexpr int first_device = 64;

int ordinal_of(int device) { return device - first_device; }

Engine& engine() { return Engine::get(); }

}  // namespace
}  // namespace stele_fake

using namespace stele_fake;

using CUresult = int;  // an enum
using CUdevice = int;
#if defined(__LP64__)
using CUdeviceptr = unsigned long long;
#else
using CUdeviceptr = unsigned int;
#endif
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;

STELE_FAKE_EXPORT CUresult cuInit(unsigned int flags) {
  return engine().enter({"cuInit", true}, [&] { return flags != 0 ? code::invalid_value : engine().initialize(); });
}

STELE_FAKE_EXPORT CUresult cuDriverGetVersion(int* version) {
  return engine().enter({"cuDriverGetVersion", true}, [&] {
    if (version == nullptr) return code::invalid_value;
    *version = engine().version();
    return code::success;
  });
}

STELE_FAKE_EXPORT CUresult cuDeviceGetCount(int* count) {
  return engine().enter({"cuDeviceGetCount"}, [&] {
    if (count == nullptr) return code::invalid_value;
    *count = engine().devices();
    return code::success;
  });
}

STELE_FAKE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return engine().enter({"cuDeviceGet"}, [&] {
    if (device == nullptr) return code::invalid_value;
    Device* found = nullptr;
    if (const Code failed = engine().device(ordinal, found); failed != code::success) return failed;
    *device = first_device + ordinal;
    return code::success;
  });
}

STELE_FAKE_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return engine().enter({"cuDeviceGetName"}, [&] {
    if (name == nullptr || length <= 0) return code::invalid_value;
    Device* found = nullptr;
    if (const Code failed = engine().device(ordinal_of(device), found); failed != code::success) return failed;
    const std::string text = std::string(flavour.device_name) + ' ' + std::to_string(ordinal_of(device));
    const std::size_t part = std::min(text.size(), static_cast<std::size_t>(length) - 1);
    std::memcpy(name, text.data(), part);
    name[part] = '\0';
    return code::success;
  });
}

STELE_FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return engine().enter({"cuDevicePrimaryCtxRetain"}, [&] {
    if (context == nullptr) return code::invalid_value;
    void* out = nullptr;
    const Code result = engine().retain(ordinal_of(device), out);
    if (result == code::success) *context = static_cast<CUcontext>(out);
    return result;
  });
}

STELE_FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return engine().enter({.name = "cuDevicePrimaryCtxRelease_v2", .always = true},
                        [&] { return engine().release(ordinal_of(device)); });
}

STELE_FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return engine().enter({"cuCtxPushCurrent_v2"}, [&] { return engine().push(context); });
}

STELE_FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return engine().enter({.name = "cuCtxPopCurrent_v2", .always = true}, [&] {
    void* out = nullptr;
    const Code result = engine().pop(out);
    if (result == code::success && context != nullptr) *context = static_cast<CUcontext>(out);
    return result;
  });
}

STELE_FAKE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  return engine().enter({"cuMemAlloc_v2"}, [&] {
    if (out == nullptr || size == 0) return code::invalid_value;
    std::uint64_t address = 0;
    const Code result = engine().allocate_device(size, address);
    if (result == code::success) *out = static_cast<CUdeviceptr>(address);
    return result;
  });
}

STELE_FAKE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  return engine().enter({.name = "cuMemFree_v2", .always = true}, [&] { return engine().free_device(address); });
}

STELE_FAKE_EXPORT CUresult cuMemHostAlloc(void** out, std::size_t size, unsigned int flags) {
  return engine().enter({"cuMemHostAlloc"}, [&] {
    constexpr unsigned known = 7;  // portable, device map, write-combined
    if (out == nullptr || size == 0 || (flags & ~known) != 0) return code::invalid_value;
    return engine().allocate_host(size, *out);
  });
}

STELE_FAKE_EXPORT CUresult cuMemFreeHost(void* memory) {
  return engine().enter({.name = "cuMemFreeHost", .always = true}, [&] { return engine().free_host(memory); });
}

STELE_FAKE_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size, CUstream stream) {
  return engine().enter({"cuMemcpyHtoDAsync_v2"}, [&] { return engine().copy_to_device(to, from, size, stream); });
}

STELE_FAKE_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return engine().enter({"cuMemcpyDtoHAsync_v2"}, [&] { return engine().copy_from_device(to, from, size, stream); });
}

STELE_FAKE_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return engine().enter({"cuStreamCreate"}, [&] {
    if (stream == nullptr || flags > 1) return code::invalid_value;
    void* out = nullptr;
    const Code result = engine().create_stream(flags == 0, out);
    if (result == code::success) *stream = static_cast<CUstream>(out);
    return result;
  });
}

STELE_FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  return engine().enter({.name = "cuStreamDestroy_v2", .always = true},
                        [&] { return engine().destroy_stream(stream); });
}

STELE_FAKE_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return engine().enter({.name = "cuStreamSynchronize", .always = true},
                        [&] { return engine().synchronize_stream(stream); });
}

STELE_FAKE_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return engine().enter({"cuStreamWaitEvent"},
                        [&] { return flags != 0 ? code::invalid_value : engine().wait_event(stream, event); });
}

STELE_FAKE_EXPORT CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return engine().enter({"cuEventCreate"}, [&] {
    // blocking sync 1, without timing 2, and interprocess 4, which needs the second
    if (event == nullptr || flags > 7 || (flags & 6U) == 4) return code::invalid_value;
    void* out = nullptr;
    const Code result = engine().create_event(out);
    if (result == code::success) *event = static_cast<CUevent>(out);
    return result;
  });
}

STELE_FAKE_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  return engine().enter({.name = "cuEventDestroy_v2", .always = true}, [&] { return engine().destroy_event(event); });
}

STELE_FAKE_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  return engine().enter({"cuEventRecord"}, [&] { return engine().record_event(event, stream); });
}

STELE_FAKE_EXPORT CUresult cuEventSynchronize(CUevent event) {
  return engine().enter({.name = "cuEventSynchronize", .always = true},
                        [&] { return engine().synchronize_event(event); });
}

STELE_FAKE_EXPORT CUresult cuEventQuery(CUevent event) {
  return engine().enter({"cuEventQuery"}, [&] { return engine().query_event(event); });
}

STELE_FAKE_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name != nullptr) *name = nullptr;
  return engine().enter({"cuGetErrorName", true}, [&] {
    if (name == nullptr) return code::invalid_value;
    static constexpr struct {
      CUresult error;
      const char* name;
    } names[] = {{code::success, "CUDA_SUCCESS"},
                 {code::invalid_value, "CUDA_ERROR_INVALID_VALUE"},
                 {code::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {code::not_initialized, "CUDA_ERROR_NOT_INITIALIZED"},
                 {code::no_device, "CUDA_ERROR_NO_DEVICE"},
                 {code::invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
                 {code::invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
                 {code::invalid_handle, "CUDA_ERROR_INVALID_HANDLE"},
                 {code::not_ready, "CUDA_ERROR_NOT_READY"},
                 {code::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {code::launch_timeout, "CUDA_ERROR_LAUNCH_TIMEOUT"},
                 {code::context_is_destroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
                 {code::launch_failed, "CUDA_ERROR_LAUNCH_FAILED"},
                 {code::not_permitted, "CUDA_ERROR_NOT_PERMITTED"},
                 {code::not_supported, "CUDA_ERROR_NOT_SUPPORTED"},
                 {code::unknown, "CUDA_ERROR_UNKNOWN"}};
    for (const auto& known : names) {
      if (known.error == error) {
        *name = known.name;
        return code::success;
      }
    }
    return code::invalid_value;
  });
}
