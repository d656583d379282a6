// Options of saving and loading.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stele/config.hpp"
#include "stele/executor.hpp"
#include "stele/layout.hpp"
#include "stele/precision/convert.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {

/// Bounds on the memory that a file can claim. The default, 0, allows the maximum that a valid file of its size and
/// format can contain (docs/faults.md has the factors).
struct Limits {
  /// Memory of one tensor, and of all tensors of a load together, in bytes. `total_bytes` also raises the bound on
  /// tensors that share bytes in the file (stele/expansion.hpp).
  std::uint64_t tensor_bytes = 0;
  std::uint64_t total_bytes = 0;
  /// Memory for names, shapes, values and metadata while a file is opened, in bytes. Tensors do not count.
  std::uint64_t index_bytes = 0;
};

/// The progress of a save or load, in bytes of tensors. A load that verifies first reads them twice: `total` counts
/// both passes.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
/// A user function `bool(const Progress&)`. It is called after every piece of at most 4 MiB, one call at a time, on any
/// thread that the save or load uses (`threads = 1`: the caller's). Returning false cancels the call: the error is
/// `cancelled`, with the consequences of any error. Copies share the function. (Not std::function: its header would add
/// a tenth to the compile time of every file that saves or loads.)
class ProgressCallback {
 public:
  ProgressCallback() = default;
  template <class F>
  ProgressCallback(F function)  // NOLINT(google-explicit-constructor)
      : object_(std::make_shared<F>(std::move(function))),
        call_([](void* object, const Progress& progress) -> bool { return (*static_cast<F*>(object))(progress); }) {}
  explicit operator bool() const noexcept { return call_ != nullptr; }
  /// Calls the function; returns true if there is none.
  bool operator()(const Progress& progress) const { return call_ == nullptr || call_(object_.get(), progress); }

 private:
  std::shared_ptr<void> object_;
  bool (*call_)(void* object, const Progress& progress) = nullptr;
};

/// The memory of loaded parameters.
enum class Storage : std::uint8_t {
  owned,  // the module's own memory
  view,   // the mapped file, if dtype and alignment allow it; else copied, and the Report lists it
};
namespace storage {
inline constexpr Storage owned = Storage::owned;
inline constexpr Storage view = Storage::view;
}  // namespace storage

struct LoadOptions {
  Storage storage = Storage::owned;
  /// Names that may be missing from the file or unused by the module, as patterns (stele/pattern.hpp): whole paths,
  /// "encoder.*" for everything below encoder, "*" for all. A further name of a tied object is unused if the file has
  /// another content under it.
  std::vector<std::string> allow_missing{};
  std::vector<std::string> allow_unused{};
  /// Loading in place: lists, optionals, variants and shapes that differ from the file are rebuilt as in the file,
  /// instead of being errors.
  bool rebuild = false;
  /// Loading in place: skips the pass that verifies all data before the module is changed.
  bool trust_data = false;
  /// Number conversions that are errors unless allowed here.
  ConvertRules convert{};
  /// Reads quantized tensors as f32 (stele/quantize.hpp), not as integers.
  bool dequantize = false;
  /// Accepts a load that uses no entry of the file. Otherwise that is an error (nothing_applied), even if allow_missing
  /// and allow_unused allow every name: the names of the file mostly differ by a prefix.
  bool allow_nothing = false;
  Limits limits{};
  /// The names of the file's tensors, for formats that store none. If unset, they come from the module's present state
  /// when it is loaded in place, else from its type, if the type determines them.
  std::optional<Layout> layout{};
  /// Maximum number of threads of the load; 0: all of the machine (or the executor), 1: the caller's only.
  unsigned threads = 0;
  /// Thread pool, not owned. If null, threads are started for the load.
  Executor* executor = nullptr;
  ProgressCallback progress{};
};

struct SaveOptions {
  /// User metadata, stored by formats that support it.
  std::map<std::string, std::string> metadata{};
  /// Drops and reports unsupported data, instead of failing.
  bool allow_loss = false;
  ConvertRules convert{};
  FileSinkOptions file{};
  /// Maximum number of threads of the save; 0: all of the machine (or the executor), 1: the caller's only. The bytes do
  /// not depend on it.
  unsigned threads = 0;
  /// Thread pool, not owned. If null, threads are started for the save.
  Executor* executor = nullptr;
  ProgressCallback progress{};
  /// Writes nothing: the Report lists what would be lost.
  bool dry_run = false;
};

/// The defaults, constructed once, so that a default argument costs nothing at the call site.
STELE_EXPORT const LoadOptions& default_load_options() noexcept;
STELE_EXPORT const SaveOptions& default_save_options() noexcept;

}  // namespace stele::inline v0
