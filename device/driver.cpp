#include <algorithm>
#include <array>
#include <utility>

#include "api.hpp"
#include "io/os/os.hpp"
#include "stele/device.hpp"

namespace stele::inline v0 {

namespace detail::device {

Status Api::check(Location where) const {
  if (where.kind == kind_ && where.ordinal >= 0 && where.ordinal < count_) return {};
  return Error(Errc::invalid_argument, "the driver does not have this device")
      .expected(to_string(Location{kind_, 0}) + (count_ > 1 ? " to " + std::to_string(count_ - 1) : std::string()))
      .found(to_string(where));
}

Error Api::failed(const char* function, int code, const char* name) {
  const std::string error =
      (name != nullptr ? std::string(name) : std::string("error")) + " (" + std::to_string(code) + ")";
  if (code == out_of_memory) return Error(Errc::out_of_memory, "the device has too little memory").found(error);
  return Error(Errc::io, "the device's driver fails in " + std::string(function)).found(error);
}

Status Symbols::complete(const std::string& library) const {
  if (missing_ == nullptr) return {};
  return Error(Errc::unsupported, "the device's driver lacks a function").file(library).expected(missing_);
}

void* Symbols::at(const char* name) const noexcept { return os::symbol(library_, name); }

namespace {

struct Kind {
  DeviceKind kind;
  Result<std::shared_ptr<Api>> (*bind)(void* library, const std::string& name);
  std::array<const char*, 3> libraries;  // tried in this order; null: none
};

#ifdef _WIN32
constexpr Kind kinds[] = {{DeviceKind::cuda, bind_cuda, {"nvcuda.dll", nullptr, nullptr}},
                          {DeviceKind::hip, bind_hip, {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"}}};
#else
constexpr Kind kinds[] = {{DeviceKind::cuda, bind_cuda, {"libcuda.so.1", nullptr, nullptr}},
                          {DeviceKind::hip, bind_hip, {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"}}};
#endif

Result<std::shared_ptr<Api>> bind(const Kind& kind, const std::string& library) {
  if (!library.empty()) {
    STELE_TRY_ASSIGN(void* const loaded, os::load_library(library));
    return kind.bind(loaded, library);
  }
  Result<std::shared_ptr<Api>> first = Error(Errc::not_found, "there is no driver");
  for (const char* const name : kind.libraries) {
    if (name == nullptr) break;
    auto loaded = os::load_library(name);
    if (loaded) return kind.bind(*loaded, name);
    if (name == kind.libraries[0]) first = std::move(loaded).error();
  }
  return first;
}

}  // namespace
}  // namespace detail::device

namespace device {

Result<Driver> Driver::open(DeviceKind kind, const std::string& library) {
  return detail::guarded([&]() -> Result<Driver> {
    for (const auto& known : detail::device::kinds) {
      if (known.kind != kind) continue;
      STELE_TRY_ASSIGN(auto api, detail::device::bind(known, library));
      return Driver(std::move(api));
    }
    return Error(Errc::unsupported, "there is no driver for this kind of device")
        .expected("cuda or hip")
        .found(to_string(Location{kind, 0}));
  });
}

Result<Driver> Driver::find() {
  for (const auto& known : detail::device::kinds) {
    if (auto driver = open(known.kind)) return driver;
  }
  return Error(Errc::not_found, "there is no device with a driver of CUDA or HIP");
}

DeviceKind Driver::kind() const noexcept { return api_->kind(); }
int Driver::count() const noexcept { return api_->count(); }

Result<std::string> Driver::name(int ordinal) const {
  STELE_TRY(api_->check({kind(), ordinal}));
  return api_->name(ordinal);
}

Result<std::shared_ptr<std::byte>> Driver::allocate(int ordinal, std::size_t size) const {
  return detail::guarded([&]() -> Result<std::shared_ptr<std::byte>> {
    STELE_TRY(api_->check({kind(), ordinal}));
    STELE_TRY_ASSIGN(std::byte* const data, api_->allocate(ordinal, std::max<std::size_t>(size, 1)));
    return std::shared_ptr<std::byte>(data, [api = api_, ordinal](std::byte* p) { api->free(ordinal, p); });
  });
}

namespace {

/// Copies through page-locked memory, in pieces, after the work of the default stream, for which the stream of the
/// copies does not wait.
template <class Copy>
Status copy_and_wait(detail::device::Api& api, int ordinal, std::size_t size, Copy copy) {
  return detail::guarded([&]() -> Status {
    STELE_TRY(api.check({api.kind(), ordinal}));
    if (size == 0) return {};
    STELE_TRY(api.synchronize(ordinal, nullptr));
    const std::size_t piece = std::min(size, std::size_t{1} << 20);
    STELE_TRY_ASSIGN(std::byte* const buffer, api.allocate_host(ordinal, piece));
    const std::unique_ptr<std::byte, std::function<void(std::byte*)>> owner(
        buffer, [&](std::byte* p) { api.free_host(ordinal, p); });
    STELE_TRY_ASSIGN(const detail::device::Handle stream, api.create_stream(ordinal));
    Status status;
    for (std::size_t done = 0; status && done < size; done += piece) {
      status = copy(buffer, done, std::min(piece, size - done), stream);
    }
    api.destroy_stream(ordinal, stream);
    return status;
  });
}

}  // namespace

Status Driver::copy_to_device(int ordinal, std::byte* to, std::span<const std::byte> from) const {
  return copy_and_wait(*api_, ordinal, from.size(),
                       [&](std::byte* buffer, std::size_t at, std::size_t n, detail::device::Handle stream) -> Status {
                         std::copy_n(from.data() + at, n, buffer);
                         STELE_TRY(api_->copy_to_device(ordinal, to + at, buffer, n, stream));
                         return api_->synchronize(ordinal, stream);
                       });
}

Status Driver::copy_from_device(int ordinal, std::span<std::byte> to, const std::byte* from) const {
  return copy_and_wait(*api_, ordinal, to.size(),
                       [&](std::byte* buffer, std::size_t at, std::size_t n, detail::device::Handle stream) -> Status {
                         STELE_TRY(api_->copy_from_device(ordinal, buffer, from + at, n, stream));
                         STELE_TRY(api_->synchronize(ordinal, stream));
                         std::copy_n(buffer, n, to.data() + at);
                         return {};
                       });
}

BlockTensor::BlockTensor(std::shared_ptr<void> block, std::byte* data, Shape shape, DType dtype, Location where)
    : block_(std::move(block)), data_(data), shape_(std::move(shape)), dtype_(dtype), where_(where) {}

void BlockTensor::swap(BlockTensor& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  std::swap(shape_, other.shape_);
  std::swap(dtype_, other.dtype_);
  std::swap(where_, other.where_);
}

}  // namespace device
}  // namespace stele::inline v0
