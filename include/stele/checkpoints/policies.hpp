// Policies that select the steps of a training run to save, and the saved steps to keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stele/config.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

/// A saved step, as its manifest describes it.
struct StepInfo {
  std::int64_t step = 0;
  std::string folder{};                     ///< path of the step's folder
  std::map<std::string, double> metrics{};  ///< by name: "loss", …
  std::int64_t time_ms = 0;                 ///< wall time of the save, in milliseconds since 1970-01-01 UTC
  std::string library{};                    ///< "stele" and its version
  std::string format{};                     ///< name of the format of its parts: "stele", …
  int signal = 0;                           ///< the signal that triggered the save; 0: none
  std::uint64_t bytes = 0;                  ///< size of all files except the manifest
  std::optional<std::int64_t> base{};       ///< the step that its parts are deltas of; nullopt: the step is whole
  std::size_t deltas = 0;                   ///< number of steps since the last whole one; 0: the step is whole
  Value state{};                            ///< a map: state of random number generators, position in the data, …
};

/// The direction in which values of a metric are better.
enum class Better : std::uint8_t { lower, higher };

/// Selects the saved steps to keep. The newest step is always kept. Steps without a valid manifest, and steps that a
/// resume has skipped because they do not verify, are never removed.
class STELE_EXPORT KeepPolicy {
 public:
  /// Sets `keep[i]` for each step to keep, and does not change the other elements. `steps` is sorted by step.
  using Select = std::function<void(std::span<const StepInfo> steps, std::vector<bool>& keep)>;
  explicit KeepPolicy(Select select);
  /// Returns the steps to keep, which include the newest one.
  std::vector<bool> operator()(std::span<const StepInfo> steps) const;
  /// Keeps the steps that at least one of the policies keeps.
  friend STELE_EXPORT KeepPolicy operator|(KeepPolicy a, KeepPolicy b);

 private:
  Select select_;
};

namespace keep {

/// Keeps every step.
STELE_EXPORT KeepPolicy all();
/// Keeps the newest `count` steps.
STELE_EXPORT KeepPolicy latest(std::size_t count);
/// Keeps the best `count` steps by a metric. Steps without the metric, or with NaN, rank last; of equal steps, the
/// newer one ranks higher.
STELE_EXPORT KeepPolicy best(std::size_t count, std::string metric, Better better = Better::lower);
/// Keeps the steps that are multiples of `steps` (0: none).
STELE_EXPORT KeepPolicy every_steps(std::int64_t steps);
/// Keeps the oldest step, and then each step that was saved at least this many seconds after the previous kept one, or
/// before it (if the clock was set back).
STELE_EXPORT KeepPolicy every_seconds(double seconds);
/// Keeps the steps for which `predicate` returns true.
STELE_EXPORT KeepPolicy matching(std::function<bool(const StepInfo&)> predicate);

}  // namespace keep

/// The inputs of a SavePolicy's decision.
struct SaveMoment {
  std::int64_t step = 0;
  std::optional<std::int64_t> last_step{};  ///< the last step that was saved, or is being saved in the background
  double seconds = 0;  ///< since the last save began, or, before the first save, since the manager was opened
  int signal = 0;      ///< a signal that arrived after the last save (finished or in the background) began; 0: none
};

/// Decides whether a step is saved (CheckpointManager::due).
class STELE_EXPORT SavePolicy {
 public:
  using Decide = std::function<bool(const SaveMoment& moment)>;
  explicit SavePolicy(Decide decide, std::vector<int> signals = {});
  bool operator()(const SaveMoment& moment) const { return decide_(moment); }
  /// Returns the signals that the manager catches for this policy.
  const std::vector<int>& signals() const noexcept { return signals_; }
  /// Saves if at least one of the policies selects the step.
  friend STELE_EXPORT SavePolicy operator|(const SavePolicy& a, const SavePolicy& b);

 private:
  Decide decide_;
  std::vector<int> signals_;
};

namespace save_when {

/// Saves the steps that are multiples of `steps` (0: none).
STELE_EXPORT SavePolicy every_steps(std::int64_t steps);
/// Saves if this many seconds have passed since the last save began.
STELE_EXPORT SavePolicy every_seconds(double seconds);
/// Saves after one of these signals, such as SIGTERM or SIGUSR1 before a preemption. The manager catches them, so they
/// no longer end the process; the program checks CheckpointManager::signalled() and ends itself.
STELE_EXPORT SavePolicy on_signal(std::initializer_list<int> signals);

}  // namespace save_when

}  // namespace stele::inline v0
