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

namespace stele {
inline namespace v0 {

/// Bounds on the memory that a file can ask for. 0 is the default of each: what a file of its size and format can
/// honestly hold (docs/faults.md has the factors).
struct Limits {
  /// Memory of one tensor, and of all tensors of a load together, in bytes.
  std::uint64_t tensor_bytes = 0;
  std::uint64_t total_bytes = 0;
  /// Memory that opening a file takes beside the tensors, in bytes: names, shapes, values, metadata.
  std::uint64_t index_bytes = 0;
};

/// How far a save or load is, in bytes of tensors. A load that verifies first passes over them twice: `total` counts
/// both.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
/// A function of yours, `bool(const Progress&)`. It is called as bytes flow, every 4 MiB at most, one call at a time,
/// on any thread that the save or load uses (`threads = 1`: the caller's). False stops: the error is `cancelled`, and
/// everything else is as with any error. Copies share it. (Not std::function: its header would cost every file that
/// saves or loads a tenth of its compile time.)
class ProgressCallback {
 public:
  ProgressCallback() = default;
  template <class F>
  ProgressCallback(F function)  // NOLINT(google-explicit-constructor)
      : object_(std::make_shared<F>(std::move(function))),
        call_([](void* object, const Progress& progress) -> bool { return (*static_cast<F*>(object))(progress); }) {}
  explicit operator bool() const noexcept { return call_ != nullptr; }
  /// An empty one goes on.
  bool operator()(const Progress& progress) const { return call_ == nullptr || call_(object_.get(), progress); }

 private:
  std::shared_ptr<void> object_;
  bool (*call_)(void* object, const Progress& progress) = nullptr;
};

/// Where loaded parameters live.
enum class Storage : std::uint8_t {
  owned,  // in the module's own memory
  view,   // in the mapped file, where dtype and alignment allow; else copied, and the Report says so
};
namespace storage {
inline constexpr Storage owned = Storage::owned;
inline constexpr Storage view = Storage::view;
}  // namespace storage

struct LoadOptions {
  Storage storage = Storage::owned;
  /// Names that may be missing in the file or unused by the module, as patterns (stele/pattern.hpp): whole paths,
  /// "encoder.*" for everything below encoder, "*" for all. A further name of a tied object is unused where the file
  /// has another content under it.
  std::vector<std::string> allow_missing{};
  std::vector<std::string> allow_unused{};
  /// Loading in place: lists of another length, absent or present optionals, other alternatives and other shapes are
  /// made as in the file instead of being errors.
  bool rebuild = false;
  /// Loading in place: skips the pass that verifies all data before the module is touched.
  bool trust_data = false;
  /// Number conversions that are errors unless allowed here.
  ConvertRules convert{};
  /// Quantized tensors are read as f32 (stele/quantize.hpp); else they are integers.
  bool dequantize = false;
  Limits limits{};
  /// The names of the file's tensors, for formats that do not say them. Without it they follow from the module: as it
  /// is when it is loaded in place, else from its type where that leaves nothing open.
  std::optional<Layout> layout{};
  /// Threads that the load may use; 0: as many as the machine (or the executor) has, 1: the caller's alone.
  unsigned threads = 0;
  /// Where they come from; borrowed. Without one they are started for the load.
  Executor* executor = nullptr;
  ProgressCallback progress{};
};

struct SaveOptions {
  /// User metadata, kept by formats that can.
  std::map<std::string, std::string> metadata{};
  /// What the format cannot hold is left out and reported, instead of being an error.
  bool allow_loss = false;
  ConvertRules convert{};
  FileSinkOptions file{};
  /// Threads that the save may use; 0: as many as the machine (or the executor) has, 1: the caller's alone. The bytes
  /// do not depend on it.
  unsigned threads = 0;
  /// Where they come from; borrowed. Without one they are started for the save.
  Executor* executor = nullptr;
  ProgressCallback progress{};
  /// Writes nothing: the Report says what would be lost.
  bool dry_run = false;
};

/// The defaults, made once: a default argument of this kind costs nothing where a function is called.
STELE_EXPORT const LoadOptions& default_load_options() noexcept;
STELE_EXPORT const SaveOptions& default_save_options() noexcept;

}  // namespace v0
}  // namespace stele
