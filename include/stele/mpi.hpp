// stele::mpi: checkpoints of a program that runs as several processes.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/checkpoints/manager.hpp"
#include "stele/checkpoints/sharded.hpp"
#include "stele/options.hpp"
#include "stele/record.hpp"
#include "stele/report.hpp"

namespace stele::inline v0::mpi {

struct Options {
  SaveOptions save{};
  LoadOptions load{};
  PrecisionSpec precision{};  ///< precision of saved parameters; optimizer state is unchanged
  /// The number of files. 0: one for each process, with its boxes, as torch.distributed.checkpoint writes them
  /// (HuggingFaceStorageWriter). Otherwise, all processes together write files of whole tensors by MPI-IO, and an index
  /// in the format of transformers.
  unsigned files = 0;
  /// Compares the bytes of replicas by their checksums. A difference is an error (malformed) with the tensor's path.
  bool verify_replicas = false;
  /// On resume, each process verifies its share of the step's files before the step is used.
  bool verify_files = true;
  /// Maximum seconds that a process waits for another process. After that, the call returns an error (timed_out), and
  /// the communicator cannot be used again. Must be longer than the slowest write of a process. Does not apply within a
  /// call of MPI-IO (`files`).
  double timeout_seconds = 600;
};

namespace detail {

using v0::detail::Object;

/// One tree of tensors to save: the parameters, or a kind of optimizer state.
struct Part {
  std::string key;  // key of the optimizer state; empty: the parameters
  Snapshot snapshot;
};
/// A part to load: its target in memory.
struct Target {
  std::string key;
  Snapshot live;
  void* object = nullptr;
  Status (*check)(const Target& target, const Snapshot& snapshot, const LoadOptions& options) = nullptr;
  Status (*load)(const Target& target, const Snapshot& snapshot, const LoadOptions& options) = nullptr;
};

/// Returns optimizer state of one kind; its module's values are not part of it.
inline OptimizerState state_of(const std::string& key, const Snapshot& arrays) {
  OptimizerState state;
  state.set_snapshot(key, arrays);
  return state;
}

template <class M>
Result<Target> target_of(std::string_view key, M& module) {
  v0::detail::check_writable<M>();
  Target target{std::string(key), {}, &module, nullptr, nullptr};
  STELE_TRY_ASSIGN(target.live, snapshot_of(std::as_const(module)));
  target.check = [](const Target& to, const Snapshot& snapshot, const LoadOptions& options) -> Status {
    const M& object = *static_cast<const M*>(to.object);
    if (to.key.empty()) {
      STELE_TRY(dry_run(object, snapshot, options));
    } else {
      STELE_TRY(state_of(to.key, snapshot).dry_run(to.key, object, options));
    }
    return {};
  };
  target.load = [](const Target& to, const Snapshot& snapshot, const LoadOptions& options) -> Status {
    M& object = *static_cast<M*>(to.object);
    if (to.key.empty()) return load_into(object, snapshot, options);
    return state_of(to.key, snapshot).load_into(to.key, object, options);
  };
  return target;
}

STELE_EXPORT Result<Report> save(const Result<Snapshot>& snapshot, const std::string& folder, MPI_Comm comm,
                                 const Options& options);
STELE_EXPORT Status load(Result<Target> target, const std::string& path, MPI_Comm comm, const Options& options);
class Manager;

}  // namespace detail

/// Saves a module of all processes of `comm` as one folder. Collective. The boxes of each Sharded field must cover its
/// tensor exactly. The lowest process that has a box writes it; this also applies to all other fields. The folder
/// appears, or replaces an older checkpoint, in one step. All processes get the same error. Errors: malformed (boxes
/// that overlap, or leave a part out), shape_mismatch (different dtypes or shapes), not_representable (values that
/// differ from process 0's values, without allow_loss), timed_out, those of Recorder::save().
template <class M>
Result<Report> save(const M& module, const std::string& folder, MPI_Comm comm, const Options& options = {}) {
  return detail::save(snapshot_of(module), folder, comm, options);
}

/// Loads into a module of every process; each process reads the bytes of its boxes. Collective. `path`: a checkpoint of
/// any number of processes, a distributed checkpoint of PyTorch, or any other file or folder that stele opens. If one
/// process gets an error, all do; a module is unchanged unless Error::partially_applied().
template <class M>
Status load_into(M& module, const std::string& path, MPI_Comm comm, const Options& options = {}) {
  return detail::load(detail::target_of("", module), path, comm, options);
}

/// The steps of a distributed run, in a folder that all processes can access, or in a store of objects (s3://). Similar
/// to stele::CheckpointManager, which can also open such steps (with a ShardedSafetensorsRecorder). All members are
/// collective: all processes call them with the same step and kinds of state, and get the same result and error.
class STELE_EXPORT CheckpointManager {
 public:
  /// Opens the folder or URL of process 0, with its policies and budgets. Each process catches the signals of its
  /// policy.
  static Result<CheckpointManager> open(const std::string& folder, MPI_Comm comm, ManagerOptions manager = {},
                                        Options options = {});
  CheckpointManager(CheckpointManager&&) noexcept;
  CheckpointManager& operator=(CheckpointManager&&) noexcept;
  ~CheckpointManager();

  /// Returns the decision of process 0's save policy. Signals in any process count. Errors: timed_out.
  Result<bool> due(std::int64_t step);
  /// Returns true if this signal of the save policy has arrived in any process since the manager was opened. Errors:
  /// timed_out.
  Result<bool> signalled(int signal);
  /// Saves a step. Stores the metrics and the state of process 0; if states differ, also stores the state of each
  /// process.
  /// Errors: those of mpi::save() and of stele::CheckpointManager::save(); invalid_argument (processes with different
  /// steps or kinds of state).
  template <class M, class... Kinds>
  Result<SavedStep> save(std::int64_t step, const M& module, const StepValues& values,
                         const StateKind<Kinds>&... kinds) {
    return save(step, checkpoint_of(module, kinds...), values);
  }
  /// Saves a step of borrowed Snapshots.
  Result<SavedStep> save(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values) {
    return save(step, Result<Checkpoint>(checkpoint), values);
  }
  /// Saves a step, unless a process passes an error; all processes then get this error.
  Result<SavedStep> save(std::int64_t step, const Result<Checkpoint>& checkpoint, const StepValues& values);
  /// Loads the newest step that verifies; nullopt if there is none. `info.state` is the state that this process saved,
  /// or process 0's state if the run had fewer processes; `checkpoint` is empty.
  template <class M, class... Kinds>
  Result<std::optional<OpenedStep>> resume(M& module, const StateKind<Kinds>&... kinds) {
    std::vector<detail::Target> targets;
    Status status;
    const auto add = [&](std::string_view key, auto& object) {
      if (!status) return;
      auto target = detail::target_of(key, object);
      target ? targets.push_back(*std::move(target)) : static_cast<void>(status = std::move(target).error());
    };
    add("", module);
    (add(kinds.key, kinds.arrays), ...);
    return resume(std::move(status), std::move(targets));
  }

 private:
  explicit CheckpointManager(std::unique_ptr<detail::Manager> state) noexcept;
  Result<std::optional<OpenedStep>> resume(Status status, std::vector<detail::Target> targets);
  std::unique_ptr<detail::Manager> state_;
};

}  // namespace stele::inline v0::mpi
