// The sources of the Python module share these functions, which need the GIL unless their comments say otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stele/checkpoint.hpp>
#include <stele/detail/type_info.hpp>
#include <stele/device.hpp>
#include <stele/format.hpp>
#include <stele/options.hpp>
#include <stele/sink.hpp>
#include <stele/snapshot.hpp>
#include <stele/value.hpp>

#include "model.hpp"  // header of the command
#include "snapshot/fill.hpp"

namespace stele::python {

namespace nb = nanobind;

/// Runs `f` without the GIL.
template <class F>
auto without_gil(F f) {
  const nb::gil_scoped_release released;
  return f();
}

/// Ctrl+C ends the calls of interruptible() from now on.
void watch_urls();
/// Returns true if interruptible() has something to watch: URLs were opened, and this is the main thread.
bool watches_signals();
/// Waits until `ended` returns true. Signal handlers run meanwhile; if one raises, requests are cancelled, and its
/// exception is thrown at the end.
void wait_for(const std::function<bool(std::chrono::milliseconds)>& ended);

/// Runs `f`, which may send requests, without the GIL. Python runs signal handlers on the main thread alone, and a
/// request has no progress to call, so `f` runs on another thread if URLs were opened.
template <class F>
auto interruptible(F f) {
  if (!watches_signals()) return without_gil(f);
  auto result = std::async(std::launch::async, f);
  wait_for([&](std::chrono::milliseconds time) { return result.wait_for(time) == std::future_status::ready; });
  return result.get();
}

/// A reference to a Python object that may be dropped on any thread.
class Reference {
 public:
  explicit Reference(nb::object object) : object_(std::move(object)) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() {
    const nb::gil_scoped_acquire acquired;
    object_.reset();
  }
  const nb::object& get() const noexcept { return object_; }

 private:
  nb::object object_;
};

/// Progress of one call: passes it to a function `bool or None (done, total)`, and lets Ctrl+C end the call.
class Progress {
 public:
  explicit Progress(nb::object function) : state_(std::make_shared<State>(std::move(function))) {}
  ProgressCallback callback() const;
  /// Raises the exception of the function, if there was one.
  void check() const;

 private:
  struct State {
    explicit State(nb::object f) : function(std::move(f)) {}
    Reference function;
    std::exception_ptr error{};
  };
  std::shared_ptr<State> state_;
};

/// Returns the value, or throws the error, which becomes a stele.Error.
template <class T>
T unwrap(Result<T> result) {
  return std::move(result).value();
}
template <class T>
T unwrap(Result<T> result, const Progress& progress) {
  if (!result) progress.check();
  return std::move(result).value();
}

/// Returns a Python object that owns a C++ object.
template <class T>
nb::capsule capsule_of(T object) {
  auto owned = std::make_unique<T>(std::move(object));
  nb::capsule capsule(owned.get(), [](void* p) noexcept { delete static_cast<T*>(p); });
  static_cast<void>(owned.release());
  return capsule;
}

/// A str; bytes that are not UTF-8 become surrogates, as in the names of Python's files.
nb::object text(std::string_view s);
nb::object to_python(const Value& value);
nb::object to_python(const Report& report);
/// Returns a stele.Error.
nb::object to_python(const Error& error);
nb::dict to_python(const std::map<std::string, std::string>& strings);
/// Throws TypeError (no value), OverflowError (an integer of more than 64 bits).
Value to_value(nb::handle object);
std::map<std::string, std::string> to_strings(nb::handle dict);
/// Returns the bytes of a str; surrogates are bytes that are not UTF-8, as in os.fsdecode(). Throws TypeError.
std::string string_of(nb::handle string);

/// Bytes of a Python object with the buffer protocol, or of a file object that can seek.
SourcePtr source_of(nb::object buffer);
SourcePtr source_of_file(nb::object file, std::string name);
/// Writes to a file object.
std::unique_ptr<Sink> sink_of_file(nb::object file);
/// Returns the exception that a file object raised last, and clears it; an invalid object if there is none.
nb::object take_file_exception();

/// An opened file, or a model of arrays in memory; immutable.
class Model {
 public:
  Model(Snapshot snapshot, std::shared_ptr<const Format> format)
      : snapshot_(std::move(snapshot)), format_(std::move(format)) {}
  const Snapshot& snapshot() const noexcept { return snapshot_; }
  const std::shared_ptr<const Format>& format() const noexcept { return format_; }
  std::string format_name() const { return format_ ? std::string(format_->name()) : std::string(); }

 private:
  Snapshot snapshot_;
  std::shared_ptr<const Format> format_;
};

/// A tensor in the memory of a device, for the functions of the library that handle modules.
struct DeviceTensor {
  Location where = Location::any_device();
  std::byte* data = nullptr;
  Shape shape{};
  DType dtype = DType::none;
  std::shared_ptr<void> block{};  // null: Python owns the memory
};
extern const detail::TensorOps device_tensor_ops;

/// A driver of devices, and its copies. Thread-safe.
class Devices {
 public:
  Devices(const std::string& kind, const std::string& library);
  DeviceKind kind() const noexcept { return driver_.kind(); }
  int count() const noexcept { return driver_.count(); }
  std::string name(int ordinal) const { return unwrap(driver_.name(ordinal)); }
  /// Returns the copies, whose buffers are kept for the next call. Does not need the GIL.
  Result<std::shared_ptr<Transfer>> transfer();
  /// Waits until the default stream of a device has done its work.
  void synchronize(int ordinal) const;
  /// Reads leaves into new memory of a device. Returns a list of (owner, address).
  nb::list load(const Model& model, const std::vector<std::uint32_t>& leaves, int ordinal, bool bypass_cache,
                nb::object function);
  /// Reads leaves into memory at these addresses. They are verified before the first copy.
  void read_into(const Model& model, const std::vector<std::uint32_t>& leaves,
                 const std::vector<std::uintptr_t>& addresses, const std::vector<int>& ordinals, nb::object function);
  /// Returns the bytes at an address.
  nb::object bytes(std::uintptr_t address, std::size_t size, int ordinal) const;

 private:
  Status read(const Snapshot& snapshot, std::vector<detail::Fill> fills, std::span<const detail::DeviceTarget> targets,
              bool verify, bool bypass_cache, const Progress& progress);

  device::Driver driver_;
  std::mutex mutex_;
  std::shared_ptr<Transfer> transfer_;
};

/// Returns the training configuration of a checkpoint, or None.
nb::object to_python_training(const Checkpoint& checkpoint);

/// Returns a checkpoint of a model and {kind: model of arrays}.
Checkpoint checkpoint_of(const Model& model, const nb::dict& optimizer);

void bind_model(nb::module_& module);
void bind_arrays(nb::module_& module);
void bind_devices(nb::module_& module);
void bind_save(nb::module_& module);
void bind_transforms(nb::module_& module);
void bind_command(nb::module_& module);
void bind_checkpoints(nb::module_& module);

}  // namespace stele::python
