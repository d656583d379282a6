// Options of saving and loading.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "stele/config.hpp"
#include "stele/executor.hpp"
#include "stele/layout.hpp"
#include "stele/precision/convert.hpp"
#include "stele/precision/settings.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {

class Format;    // stele/format.hpp
class Report;    // stele/report.hpp
class Transfer;  // stele/transfer.hpp

/// Limits of the memory that a file can request. The default, 0, allows the maximum that a valid file of its size and
/// format can contain (docs/faults.md lists the factors).
struct Limits {
  /// Memory of one tensor, and of all tensors of a load together, in bytes. `total_bytes` also raises the limit of
  /// tensors that share bytes in the file (stele/expansion.hpp).
  std::uint64_t tensor_bytes = 0;
  std::uint64_t total_bytes = 0;
  /// Memory for names, shapes, values and metadata while a file is opened, in bytes. Tensors do not count.
  std::uint64_t index_bytes = 0;
};

/// The progress of a save or load, in bytes of tensors. A load that verifies first reads them twice; `total` counts
/// both passes.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
/// A user function `bool(const Progress&)`. It is called after every piece of at most 4 MiB, one call at a time, on any
/// thread of the save or load (`threads = 1`: the caller's). Returning false cancels the operation: it returns the
/// error `cancelled`, with the same consequences as any error. Copies share the function. (Not a std::function, because
/// its header would add a tenth to the compile time of every file that saves or loads.)
class ProgressCallback {
 public:
  ProgressCallback() = default;
  template <class F>
  ProgressCallback(F function)  // NOLINT(google-explicit-constructor)
      : object_(std::make_shared<F>(std::move(function))),
        call_([](void* object, const Progress& progress) -> bool { return (*static_cast<F*>(object))(progress); }) {}
  explicit operator bool() const noexcept { return call_ != nullptr; }
  /// Calls the function; returns true if no function is set.
  bool operator()(const Progress& progress) const { return call_ == nullptr || call_(object_.get(), progress); }

 private:
  std::shared_ptr<void> object_;
  bool (*call_)(void* object, const Progress& progress) = nullptr;
};

/// The memory of loaded parameters.
enum class Storage : std::uint8_t {
  owned,  // the module's own memory
  mmap,   // the mapped file, if dtype and alignment allow it; otherwise copied, and the Report lists it
};

struct LoadOptions {
  Storage storage = Storage::owned;
  /// The path of the part of the file to load, such as "model_state_dict": only names below it are read, without this
  /// prefix. Empty: the whole file.
  std::string part{};
  /// Names that may be missing from the file or unused by the module, as patterns (stele/pattern.hpp): whole paths,
  /// "encoder.*" for everything below encoder, "*" for all names. An additional name of a tied object counts as unused
  /// if the file has different content under it.
  std::vector<std::string> allow_missing{};
  std::vector<std::string> allow_unused{};
  /// When loading in place, rebuilds lists, optionals, variants and shapes that differ from the file as the file has
  /// them, instead of returning an error.
  bool rebuild = false;
  /// When loading in place, skips the pass that verifies all data before the module is changed.
  bool trust_data = false;
  /// When loading in place, reads tensors into new memory and exchanges it for the old after the last one, instead of
  /// that pass: the data is read once, and there is memory for both. Only tensors that cannot get new memory (arrays,
  /// spans, views) are verified first. An error (invalid_argument) together with `rebuild`.
  bool new_memory = false;
  /// Number conversions that are errors unless allowed here.
  ConvertRules convert{};
  /// Reads quantized tensors as f32 (stele/quantize.hpp) instead of integers.
  bool dequantize = false;
  /// Accepts a load that uses no entry of the file. Otherwise such a load is an error (nothing_applied), even if
  /// allow_missing and allow_unused allow every name, because its usual cause is a prefix that all names of the file
  /// have.
  bool allow_nothing = false;
  Limits limits{};
  /// The names of the file's tensors, for formats that do not store them. If unset, they come from the module's current
  /// state when loading in place, otherwise from the module's type, if the type determines them.
  std::optional<Layout> layout{};
  /// Maximum number of threads of the load; 0: all of the machine (or the executor), 1: only the caller's.
  unsigned threads = 0;
  /// Thread pool, not owned. If null, the load starts its threads.
  Executor* executor = nullptr;
  ProgressCallback progress{};
  /// Copies to tensors of devices (docs/guide/devices.md), not owned. If null, such tensors are written by write() of
  /// their tensor_traits, or are an error (invalid_argument).
  Transfer* transfer = nullptr;
  /// A load to devices reads large tensors past the system's cache of files (O_DIRECT, on Linux only), as far as they
  /// are not in it, and leaves the cache as it is. False: reads through the cache, which then has the bytes for the
  /// next load.
  bool bypass_cache = true;
  /// Receives the rows of the load, even if it fails (Error::report() has them too). Not owned; null: no report.
  Report* report = nullptr;
};

/// A format that the program chooses at run time: any Format object, which is copied, or one of formats().
class FormatChoice {
 public:
  FormatChoice() = default;
  template <class F>
  requires std::is_base_of_v<Format, F> FormatChoice(F format)  // NOLINT(google-explicit-constructor)
      : format_(std::make_shared<const F>(std::move(format))), chosen_(true) {}
  /// `format` is not owned. If it is null (the result of find_format() for an unknown name), the save fails.
  FormatChoice(const Format* format) noexcept  // NOLINT(google-explicit-constructor)
      : format_(std::shared_ptr<const void>(), format), chosen_(true) {}
  explicit operator bool() const noexcept { return chosen_; }
  const Format* get() const noexcept { return format_.get(); }
  const std::shared_ptr<const Format>& shared() const noexcept { return format_; }

 private:
  std::shared_ptr<const Format> format_;
  bool chosen_ = false;
};

struct SaveOptions {
  /// For stele::save only: the format; by default, the path's extension selects the format, at the precision of the
  /// module. An error (invalid_argument) with a recorder, which already has a format.
  FormatChoice format{};
  PrecisionSpec precision{};
  /// User metadata; stored by formats that support it.
  std::map<std::string, std::string> metadata{};
  /// Drops and reports unsupported data instead of failing.
  bool allow_loss = false;
  ConvertRules convert{};
  FileSinkOptions file{};
  /// Maximum number of threads of the save; 0: all of the machine (or the executor), 1: only the caller's. The saved
  /// bytes do not depend on it.
  unsigned threads = 0;
  /// Thread pool, not owned. If null, the save starts its threads.
  Executor* executor = nullptr;
  ProgressCallback progress{};
  /// Copies from tensors of devices, not owned. If null, such tensors are read by read() of their tensor_traits, or are
  /// an error (invalid_argument).
  Transfer* transfer = nullptr;
  /// Writes nothing; the Report lists the data that would be lost.
  bool dry_run = false;
};

/// The defaults, constructed once, so that a default argument costs nothing at the call site.
STELE_EXPORT const LoadOptions& default_load_options() noexcept;
STELE_EXPORT const SaveOptions& default_save_options() noexcept;

}  // namespace stele::inline v0
