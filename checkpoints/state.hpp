// The state of a CheckpointManager: its steps, its thread, and the caught signals.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/threads.hpp"
#include "place.hpp"
#include "signals.hpp"
#include "staging.hpp"
#include "stele/checkpoints/manager.hpp"

namespace stele::inline v0::detail {

Error too_many_deltas(std::size_t deltas);

/// Thread-safe, but for start() and the members that take a NewStep.
class ManagerState {
 public:
  ManagerState(std::string folder, std::shared_ptr<const Format> format, PrecisionSpec precision,
               ManagerOptions options);
  ~ManagerState();

  /// Prepares the folder and finds its steps.
  Status start();
  /// Evaluates the save policy. `signal` is a pending signal, or 0.
  bool due(std::int64_t step, int signal) const;
  const CaughtSignals& signals() const noexcept { return signals_; }
  /// Returns true in a process that was forked after the thread had started: the thread exists in the parent only.
  bool forked() const noexcept;
  void release_signals() noexcept { signals_.release(); }

  Result<SavedStep> save(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values);
  Status save_async(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values);
  Result<std::vector<SavedStep>> wait();
  /// Waits for the background thread. Returns its error once. Errors: invalid_argument (a forked process).
  Status idle();

  /// Returns the numbers of all steps, sorted; some may be broken.
  Result<std::vector<std::int64_t>> numbers() const { return place_->numbers(); }
  /// Reads and checks the manifests of a step and of its base steps.
  Result<steps::Manifest> manifest(std::int64_t step, steps::Check check) const;
  /// Lists the steps that manifest() accepts, each read once. `broken` may be null. Errors: errors of the machine.
  Result<std::vector<StepInfo>> list(std::vector<BrokenStep>* broken) const;
  Result<OpenedStep> open(const steps::Manifest& manifest) const;
  /// Removes a step. Steps that are deltas of it become whole first.
  Status remove(std::int64_t step);
  /// Records that a step does not verify: no policy counts or removes it until its number is saved again.
  void note_broken(std::int64_t step);
  std::string path(std::int64_t step) const { return place_->path(step); }

  /// A step that is being written.
  struct NewStep {
    steps::Manifest manifest;
    std::unique_ptr<Sink> sink;  // the sink of its folder; null on a dry run
  };
  /// A save that has begun.
  struct Begun {
    CaughtSignals::Answer answer{};
    std::int64_t step = 0;
    std::optional<std::int64_t> last_step{};  // the value before this save
  };
  Begun begin(std::int64_t step);
  /// Records the end of a save. Only a step on disk answers signals and counts as the last step.
  void end(const Begun& begun, bool saved);
  /// Checks the space for `bytes` of tensors, and makes the manifest of a step. Steps that are deltas of an older step
  /// of this number must become whole before create().
  Result<NewStep> begin_step(std::int64_t step, int signal, std::uint64_t bytes, const StepValues& values);
  /// Creates the folder of a step, except on a dry run.
  Status create(NewStep& made);
  /// Writes the manifest with the list of files, and makes the step visible.
  Result<SavedStep> commit_step(NewStep step, Report report);
  /// Puts a step with the same contents in place of a step. `base`: the step that the new parts are deltas of.
  Status commit_again(NewStep made, std::optional<std::int64_t> base);
  /// Returns the steps that are deltas of this one.
  std::vector<std::int64_t> deltas_of(std::int64_t step) const;
  /// Returns the base for `step` as a delta, if at most this number of deltas follow each other.
  std::optional<std::int64_t> base_of(std::int64_t step, std::size_t deltas) const;
  /// Returns true for the step that this manager saved last.
  bool trusts(std::int64_t step) const noexcept { return trusted_ == step; }

  const ManagerOptions& options() const noexcept { return options_; }
  const std::string& folder() const noexcept { return folder_; }
  const steps::Place& place() const noexcept { return *place_; }

 private:
  struct Task {
    Begun begun{};
    steps::Block block{};
    Checkpoint checkpoint{};
    StepValues values{};
  };

  Status check_deltas() const;
  Status check_process() const;
  /// Updates the list of steps, which other programs may add or remove.
  Status refresh();
  /// Runs a started save, and records its end.
  Result<SavedStep> finish(const Begun& begun, const Checkpoint& checkpoint, const StepValues& values);
  /// Returns the position of a step in the list, or of the first later one.
  std::vector<StepInfo>::iterator find(std::int64_t step);
  /// Returns the error of a background save once.
  Status take_error();
  Status check_budget(std::int64_t step, std::uint64_t bytes) const;
  Result<SavedStep> write(std::int64_t step, int signal, const Checkpoint& checkpoint, const StepValues& values);
  /// Opens the parts of a step and of its base.
  Result<Checkpoint> open_checkpoint(const steps::Manifest& manifest, std::size_t depth = 0) const;
  /// Opens the base for `step` as a delta; nullopt if the step must be whole.
  std::optional<OpenedStep> base_for(std::int64_t step) const;
  /// Saves the steps that are deltas of this one as whole steps.
  Status detach(std::int64_t step);
  /// Saves the steps `later`, which are deltas of this one, as deltas of its base.
  Status bypass(std::int64_t step, std::span<const std::int64_t> later);
  /// Saves a step again, with these parts.
  Status rewrite(steps::Manifest manifest, const Checkpoint& parts, std::optional<std::int64_t> base);
  void apply_policy(SavedStep& saved);
  Status drop(std::int64_t step);
  /// Returns false if the system cannot start a thread for background saves.
  bool start_thread() noexcept;
  void work();

  std::string folder_;
  std::unique_ptr<steps::Place> place_;
  std::shared_ptr<const Format> format_;
  PrecisionSpec precision_;
  ManagerOptions options_;
  CaughtSignals signals_;
  Mutex saving_;                         // held during a save or a removal; taken before mutex_
  std::vector<StepInfo> known_;          // steps with valid manifests, sorted; guarded by saving_
  std::optional<std::int64_t> trusted_;  // the step that this manager saved last; guarded by saving_

  steps::StagingMemory memory_;
  mutable Mutex mutex_;                    // guards all members below
  std::optional<std::int64_t> last_step_;  // the last started save that has not failed, or the newest step found
  std::chrono::steady_clock::time_point last_time_ = std::chrono::steady_clock::now();
  Condition changed_;
  std::deque<Task> tasks_;
  bool working_ = false, ending_ = false;
  std::optional<Error> error_;  // the error of the first failed background save
  std::vector<SavedStep> saved_;
  std::set<std::int64_t> broken_;  // steps that failed verification
  Thread thread_;
  std::atomic<std::uint64_t> process_{0};  // the process that started thread_; 0: not started. Read without the lock
};

}  // namespace stele::inline v0::detail
