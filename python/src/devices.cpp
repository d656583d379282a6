// Memory of devices: tensors that are read into it, and its exchange with other modules by DLPack.
#include <algorithm>
#include <bit>

#include <nanobind/ndarray.h>

#include <stele/expansion.hpp>

#include "base/parallel.hpp"
#include "bindings.hpp"
#include "device/api.hpp"
#include "module/device_memory.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"

namespace stele::python {

namespace {

DeviceTensor& device_tensor(void* object) { return *static_cast<DeviceTensor*>(object); }
const DeviceTensor& device_tensor(const void* object) { return *static_cast<const DeviceTensor*>(object); }

detail::TensorOps make_device_tensor_ops() {
  detail::TensorOps ops;
  ops.shape = [](const void* object, Shape& out) { out = device_tensor(object).shape; };
  ops.dtype_of = [](const void* object) { return device_tensor(object).dtype; };
  ops.locations = [](const void* object, void* context, void (*visit)(void*, Location, std::byte*)) {
    visit(context, device_tensor(object).where, device_tensor(object).data);
  };
  ops.part_of_device = [](void* object, std::byte* data, const Shape& shape, DType dtype, std::shared_ptr<void> block,
                          Location where) {
    device_tensor(object) = {where, data, shape, dtype, std::move(block)};
  };
  return ops;
}

DeviceKind device_kind(const std::string& kind) {
  if (kind == "cuda") return DeviceKind::cuda;
  if (kind == "hip") return DeviceKind::hip;
  throw nb::value_error(("not a kind of device: " + kind + "; expected cuda or hip").c_str());
}

std::byte* pointer(std::uintptr_t address) noexcept { return std::bit_cast<std::byte*>(address); }

/// Returns true if reading a leaf can find an error in its bytes.
bool can_fail(const LeafView& leaf) {
  if (leaf.dtype() == DType::boolean) return true;
  const auto place = leaf.location();
  return !place || place->hashed;
}

/// Takes a capsule of DLPack. Returns (owner, address, shape, code, bits, lanes, device type, ordinal, contiguous).
nb::tuple from_dlpack(const nb::object& capsule, bool writable) {
  const auto describe = [](auto array) {
    bool contiguous = true;
    std::int64_t stride = 1;
    nb::list shape;
    for (std::size_t d = array.ndim(); d-- > 0;) {
      const std::size_t extent = array.shape(d);
      contiguous = contiguous && (extent <= 1 || array.stride(d) == stride);
      stride *= static_cast<std::int64_t>(extent);
    }
    for (std::size_t d = 0; d < array.ndim(); ++d) shape.append(array.shape(d));
    const nb::dlpack::dtype dtype = array.dtype();
    const auto address = std::bit_cast<std::uintptr_t>(array.data());
    const int type = array.device_type(), ordinal = array.device_id();
    contiguous = contiguous || array.size() == 0;
    return nb::make_tuple(capsule_of(std::move(array)), address, nb::tuple(shape), dtype.code, dtype.bits, dtype.lanes,
                          type, ordinal, contiguous);
  };
  if (!writable) return describe(nb::cast<nb::ndarray<nb::ro>>(capsule));
  nb::ndarray<> array;
  if (!nb::try_cast(capsule, array)) throw nb::value_error("the memory is read-only");
  return describe(std::move(array));
}

/// Returns an object with __dlpack__() and __dlpack_device__() for memory that `owner` keeps.
nb::object to_dlpack(const nb::object& owner, std::uintptr_t address, const std::vector<std::size_t>& shape,
                     unsigned code, unsigned bits, int type, int ordinal) {
  const nb::dlpack::dtype dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
  return nb::cast(
      nb::ndarray<nb::array_api>(pointer(address), shape.size(), shape.data(), owner, nullptr, dtype, type, ordinal));
}

}  // namespace

const detail::TensorOps device_tensor_ops = make_device_tensor_ops();

Devices::Devices(const std::string& kind, const std::string& library)
    : driver_(unwrap(without_gil([&] { return device::Driver::open(device_kind(kind), library); }))) {}

Result<std::shared_ptr<Transfer>> Devices::transfer() {
  const std::lock_guard lock(mutex_);
  if (transfer_ == nullptr) {
    STELE_TRY_ASSIGN(transfer_, device::make_transfer(driver_));
  }
  return transfer_;
}

void Devices::synchronize(int ordinal) const {
  unwrap(without_gil([&]() -> Status {
    STELE_TRY(driver_.api()->check({kind(), ordinal}));
    return driver_.api()->synchronize(ordinal, nullptr);
  }));
}

Status Devices::read(const Snapshot& snapshot, std::vector<detail::Fill> fills,
                     std::span<const detail::DeviceTarget> targets, bool verify, bool bypass_cache,
                     const Progress& progress) {
  std::stable_sort(fills.begin(), fills.end(),
                   [](const detail::Fill& a, const detail::Fill& b) { return a.leaf < b.leaf; });
  std::vector<detail::Fill> checks;
  std::uint64_t total = 0;
  for (const detail::Fill& fill : fills) {
    const LeafView leaf = snapshot.leaf(fill.leaf);
    total += leaf.byte_size();
    if (!verify || !can_fail(leaf)) continue;
    total += leaf.byte_size();
    checks.push_back({nullptr, fill.leaf, fill.to});
  }
  const ProgressCallback callback = progress.callback();
  detail::Meter meter(callback, total);
  const detail::Workers workers = detail::workers_of(0, nullptr);
  detail::Filled filled;
  STELE_TRY(detail::fill(snapshot, checks, {}, meter, workers, filled));
  STELE_TRY_ASSIGN(const std::shared_ptr<Transfer> copies, transfer());
  STELE_TRY(copies->begin());
  const detail::OnDevices devices{*copies, targets, bypass_cache};
  auto status = detail::fill(snapshot, fills, {}, meter, workers, filled, &devices);
  if (status) status = copies->finish();
  if (status) return status;
  copies->cancel();
  const std::lock_guard lock(mutex_);
  if (transfer_ == copies) transfer_ = nullptr;  // its copies may have failed
  return status;
}

nb::list Devices::load(const Model& model, const std::vector<std::uint32_t>& leaves, int ordinal, bool bypass_cache,
                       nb::object function) {
  const Snapshot& snapshot = model.snapshot();
  const Progress progress(std::move(function));
  std::vector<DeviceTensor> tensors(leaves.size());
  unwrap(without_gil([&] {
           return detail::guarded([&]() -> Status {
             STELE_TRY(check_expansion(snapshot));
             STELE_TRY_ASSIGN(const std::shared_ptr<Transfer> copies, transfer());
             detail::DeviceMemory memory(copies.get());
             std::vector<detail::Fill> fills;
             std::vector<detail::DeviceTarget> targets;
             for (std::size_t i = 0; i < leaves.size(); ++i) {
               STELE_TRY_ASSIGN(const LeafView leaf, snapshot.checked_leaf(leaves[i]));
               if (leaf.byte_size() > PTRDIFF_MAX) return Error(Errc::out_of_memory).path(leaf.path());
               tensors[i].where = {kind(), ordinal};
               STELE_TRY(memory.give(device_tensor_ops, &tensors[i], nullptr, Shape(leaf.shape()), leaf.dtype(),
                                     static_cast<std::size_t>(leaf.byte_size()), {}));
               detail::Fill fill{nullptr, leaves[i], leaf.dtype()};
               fill.first_target = static_cast<std::uint32_t>(targets.size());
               fill.targets = 1;
               memory.add_targets(device_tensor_ops, &tensors[i], targets);
               fills.push_back(fill);
             }
             return read(snapshot, std::move(fills), targets, false, bypass_cache, progress);
           });
         }),
         progress);
  std::map<const void*, nb::capsule> owners;
  nb::list list;
  for (DeviceTensor& tensor : tensors) {
    auto [at, added] = owners.try_emplace(tensor.block.get());
    if (added) at->second = capsule_of(std::move(tensor.block));
    list.append(nb::make_tuple(at->second, std::bit_cast<std::uintptr_t>(tensor.data)));
  }
  return list;
}

void Devices::read_into(const Model& model, const std::vector<std::uint32_t>& leaves,
                        const std::vector<std::uintptr_t>& addresses, const std::vector<int>& ordinals,
                        nb::object function) {
  const Snapshot& snapshot = model.snapshot();
  const Progress progress(std::move(function));
  unwrap(without_gil([&] {
           return detail::guarded([&]() -> Status {
             STELE_TRY(check_expansion(snapshot));
             std::vector<detail::Fill> fills;
             std::vector<detail::DeviceTarget> targets;
             for (std::size_t i = 0; i < leaves.size(); ++i) {
               STELE_TRY_ASSIGN(const LeafView leaf, snapshot.checked_leaf(leaves[i]));
               const Location where{kind(), ordinals.at(i)};
               STELE_TRY(driver_.api()->check(where));
               if (leaf.byte_size() == 0) continue;
               detail::Fill fill{nullptr, leaves[i], leaf.dtype()};
               fill.first_target = static_cast<std::uint32_t>(targets.size());
               fill.targets = 1;
               targets.push_back({pointer(addresses.at(i)), where});
               fills.push_back(fill);
             }
             return read(snapshot, std::move(fills), targets, true, true, progress);
           });
         }),
         progress);
}

nb::object Devices::bytes(std::uintptr_t address, std::size_t size, int ordinal) const {
  Bytes memory(size);
  unwrap(without_gil([&] { return driver_.copy_from_device(ordinal, memory.span(), pointer(address)); }));
  auto* const data = memory.data();
  const nb::capsule owner = capsule_of(std::move(memory));
  static std::byte nothing[16];
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(size == 0 ? nothing : data, {size}, owner));
}

void bind_devices(nb::module_& module) {
  nb::class_<Devices>(module, "Devices")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("kind"), nb::arg("library"))
      .def_prop_ro("count", &Devices::count)
      .def("name", &Devices::name, nb::arg("ordinal"))
      .def("synchronize", &Devices::synchronize, nb::arg("ordinal"))
      .def("load", &Devices::load, nb::arg("model"), nb::arg("leaves"), nb::arg("ordinal"), nb::arg("bypass_cache"),
           nb::arg("progress").none())
      .def("read_into", &Devices::read_into, nb::arg("model"), nb::arg("leaves"), nb::arg("addresses"),
           nb::arg("ordinals"), nb::arg("progress").none())
      .def("bytes", &Devices::bytes, nb::arg("address"), nb::arg("size"), nb::arg("ordinal"));
  module.def("from_dlpack", from_dlpack, nb::arg("capsule"), nb::arg("writable"));
  module.def("to_dlpack", to_dlpack, nb::arg("owner"), nb::arg("address"), nb::arg("shape"), nb::arg("code"),
             nb::arg("bits"), nb::arg("type"), nb::arg("ordinal"));
}

}  // namespace stele::python
