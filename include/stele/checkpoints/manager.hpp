// The steps of a training run in one folder: each is saved completely or not at all, policies select the steps to keep,
// and a run resumes from a step that verifies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/checkpoint.hpp"
#include "stele/checkpoints/policies.hpp"
#include "stele/record.hpp"
#include "stele/recorder.hpp"
#include "stele/report.hpp"

namespace stele::inline v0 {

/// One kind of optimizer state with its key: `StateKind("M", moments)`. `arrays` is borrowed.
template <class M>
struct StateKind {
  StateKind(std::string_view name, M& object) : key(name), arrays(object) {}
  std::string_view key;
  M& arrays;
};

/// Returns a checkpoint of a module and its optimizer state, all of them borrowed.
template <class M, class... Kinds>
Result<Checkpoint> checkpoint_of(const M& module, const StateKind<Kinds>&... kinds) {
  Checkpoint checkpoint;
  STELE_TRY_ASSIGN(checkpoint.parameters, snapshot_of(module));
  Status status;
  [[maybe_unused]] const auto add = [&](const auto& kind) {
    if (status) status = checkpoint.optimizer.set(std::string(kind.key), kind.arrays);
  };
  (add(kinds), ...);
  if (!status) return std::move(status).error();
  return checkpoint;
}

/// The part of a step that is not in a Checkpoint.
struct StepValues {
  std::map<std::string, double> metrics{};  ///< metrics for policies: "loss", …
  /// All other state of a run: random states (stele/checkpoints/random.hpp), position in the data, configuration.
  Value::Map state{};
};

/// The result of a save.
struct SavedStep {
  StepInfo info{};
  Report report{};                      ///< for all parts; paths of optimizer state begin with "optimizer.KIND."
  std::vector<std::int64_t> removed{};  ///< steps that the keep policy removed
  /// Set if a step that the policy does not keep could not be removed. The save itself succeeded.
  std::optional<Error> not_removed{};
};

/// A step that was found but not used, and the reason.
struct BrokenStep {
  std::int64_t step = 0;
  Error error;
};

/// An opened step. All arrays are lazy and refer to the step's files.
struct OpenedStep {
  StepInfo info{};
  Checkpoint checkpoint{};
  std::vector<BrokenStep> skipped{};  ///< newer steps that did not verify; they are left unchanged
};

struct ManagerOptions {
  KeepPolicy keep = keep::all();
  SavePolicy save = save_when::every_steps(1);
  /// Options of every part that is saved. `metadata` applies to the parameters; `format` and `precision` are for a
  /// manager without a recorder.
  SaveOptions parts{};
  /// Options for opening and loading parts.
  LoadOptions load{};
  /// Maximum bytes of tensors in the folder, counting all steps and the one being saved, before any step is removed. A
  /// save that would exceed it fails (no_space) before it writes. 0: no maximum.
  std::uint64_t max_bytes = 0;
  /// Bytes that must remain free on the file system; otherwise a save fails (no_space) before it writes.
  std::uint64_t spare_bytes = std::uint64_t{16} << 20;
  /// Maximum memory for the copies from which background saves write. 0: one checkpoint, so that a background save
  /// waits for the previous one.
  std::uint64_t staging_bytes = 0;
  /// The maximum number of steps in a row that are saved as deltas of the step before (stele/delta.hpp): unchanged
  /// tensors cost no bytes, and a resume reads the last whole step and its deltas. A step stays as long as a kept one
  /// is a delta of it. 0: every step is whole. At most 100. For formats that store deltas (a CompressedRecorder), and
  /// for stele::mpi::CheckpointManager.
  std::size_t deltas = 0;
  /// After a save, joins the deltas of steps that are not kept with the deltas of the next steps, so that only kept
  /// steps and whole steps remain. Reads and writes these deltas again; in background saves, so does the background
  /// thread.
  bool compact = false;
  /// Formats of older steps in the folder, if they differ from the manager's: stele::formats() for all of them.
  std::span<const Format* const> older_formats{};
};

namespace detail {
class ManagerState;
struct STELE_EXPORT EndManager {
  void operator()(ManagerState* state) const noexcept;
};
}  // namespace detail

/// Saves the steps of a training run into a folder, and finds the step to resume from. A step is a folder `step-NUMBER`
/// (8 or more digits) with one file or folder for each part, and `manifest.json`, which lists every file with its
/// checksum (docs/formats/steps.md). A step becomes visible by one rename, after all of it is synced.
///
/// Only one process may write to the folder; other processes may read it. Threads may share a manager: saves and
/// removals run in turn, and its policies may be called from any of these threads. A process that forks after a
/// background save may read the steps in its child, and destroy the manager there; saves, wait() and remove() are
/// errors there (invalid_argument).
class STELE_EXPORT CheckpointManager {
 public:
  /// Opens the folder. Creates the folder if it is missing (but not its parent), and removes the leftovers of killed
  /// processes. `recorder` writes the parts. Errors: io, not_found, unsupported (a read-only format), needs_layout (a
  /// format whose files have no names, without ManagerOptions::load.layout).
  template <class FormatType, PrecisionSettings Settings>
  static Result<CheckpointManager> open(const std::string& folder, const Recorder<FormatType, Settings>& recorder,
                                        ManagerOptions options = {}) {
    if (options.parts.format || !(options.parts.precision == PrecisionSpec())) return two_formats(folder);
    options.parts.format = recorder.format();
    options.parts.precision = precision_spec<Settings>();
    return open(folder, std::move(options));
  }
  /// Opens the folder with ManagerOptions::parts.format and precision, which the program chooses at run time.
  static Result<CheckpointManager> open(const std::string& folder, ManagerOptions options);
  CheckpointManager(CheckpointManager&&) noexcept;
  CheckpointManager& operator=(CheckpointManager&&) noexcept;
  /// Waits for background saves. Prints to stderr any error that no call has returned; to get it, call wait() first.
  ~CheckpointManager();

  /// Returns true if the save policy selects this step.
  bool due(std::int64_t step) const;
  /// Returns true if this signal of the save policy has arrived since the manager was opened.
  bool signalled(int signal) const noexcept;

  /// Saves a step, and removes the steps that the keep policy does not keep. A step with the same number is replaced;
  /// if it does not verify, it is first renamed to `NAME.broken-N`. On error, the folder is unchanged. Errors: those of
  /// a background save (below), no_space, those of a recorder's save(), invalid_argument (a negative step).
  Result<SavedStep> save(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values = {});
  /// Saves in the background. Returns after the whole checkpoint is copied, so that the caller may change the tensors.
  /// Waits while ManagerOptions::staging_bytes are in use. A larger checkpoint, or one for which the system cannot
  /// start a thread, is saved before the call returns. If an earlier background save has failed, returns that error,
  /// once, and saves nothing.
  Status save_async(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values = {});
  /// Waits until all background saves have ended. Returns those that have finished since the last wait(). Errors: the
  /// error of the first background save that failed.
  Result<std::vector<SavedStep>> wait();

  /// Returns the steps with a valid manifest and files of the right sizes, sorted by step. `broken` receives all other
  /// steps. Returns errors of the machine (io, out_of_memory) and does not treat them as broken steps.
  Result<std::vector<StepInfo>> steps(std::vector<BrokenStep>* broken = nullptr) const;
  /// Returns the newest of steps().
  Result<std::optional<StepInfo>> latest() const;
  /// Returns the best of steps() by a metric, ranked as by keep::best(); nullopt if no step has this metric.
  Result<std::optional<StepInfo>> best(const std::string& metric, Better better = Better::lower) const;
  /// Verifies the checksum of every file of a step. Errors: not_found, checksum, truncated, malformed, unsupported, io.
  Status verify(std::int64_t step) const;
  /// Removes a step. Renames it first, so that a crash leaves no partial step. Errors: not_found, io.
  Status remove(std::int64_t step);

  /// Opens a step after verifying it. Errors: those of verify() and of opening its parts.
  Result<OpenedStep> open_step(std::int64_t step) const;
  /// Opens the newest step that verifies; nullopt if the folder has no step. Errors: checksum (the folder has steps,
  /// but none verifies), unsupported (the newest step has a later version, or a format that the manager does not have),
  /// io and out_of_memory (the machine failed while reading the newest step, which may be intact).
  Result<std::optional<OpenedStep>> open_latest() const;
  /// Loads the newest step that verifies into a module and its optimizer state: on success all of them, on error none
  /// (unless Error::partially_applied()). Returns nullopt if the folder has no step. Errors: those of open_latest() and
  /// of any load; not_found (the step does not have a kind of state).
  template <class M, class... Kinds>
  Result<std::optional<OpenedStep>> resume(M& module, const StateKind<Kinds>&... kinds) const {
    STELE_TRY_ASSIGN(std::optional<OpenedStep> opened, open_latest());
    if (opened) STELE_TRY(load_step(*opened, module, kinds...));
    return opened;
  }
  /// Loads an opened step, like resume().
  template <class M, class... Kinds>
  Status load_step(const OpenedStep& opened, M& module, const StateKind<Kinds>&... kinds) const {
    const Checkpoint& checkpoint = opened.checkpoint;
    // Compares all parts with their targets before it changes the first one.
    STELE_TRY(dry_run(std::as_const(module), checkpoint.parameters, load_options()));
    Status status;
    [[maybe_unused]] const auto check = [&](const auto& kind) {
      if (!status) return;
      auto fits = checkpoint.optimizer.dry_run(kind.key, std::as_const(kind.arrays), load_options());
      if (!fits) status = std::move(fits).error();
    };
    (check(kinds), ...);
    STELE_TRY(status);
    STELE_TRY(load_into(module, checkpoint.parameters, load_options()));
    [[maybe_unused]] const auto load = [&](const auto& kind) {
      if (!status) return;
      auto loaded = checkpoint.optimizer.load_into(kind.key, kind.arrays, load_options());
      if (!loaded) status = std::move(loaded).error().partially_applied(true);
    };
    (load(kinds), ...);
    return status;
  }

 private:
  using State = std::unique_ptr<detail::ManagerState, detail::EndManager>;
  explicit CheckpointManager(State state) noexcept;
  static Error two_formats(const std::string& folder);
  const LoadOptions& load_options() const noexcept;
  State state_;
};

}  // namespace stele::inline v0
