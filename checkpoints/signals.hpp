// The signals of a save policy, from when a manager is opened until its end.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// Catches signals, and releases them in the end. Members but start() are safe to call from several threads.
class CaughtSignals {
 public:
  CaughtSignals() = default;
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals();
  /// Catches these signals from now on. Errors: invalid_argument (a signal that cannot be caught).
  Status start(const std::vector<int>& signals);
  /// Returns a signal that no save answers, or 0.
  int pending() const;
  /// Returns true if the signal has arrived since start().
  bool arrived(int signal) const noexcept;
  /// The signals that a save answers if it succeeds.
  struct Answer {
    int signal = 0;                       // the one that was pending, or 0
    std::vector<std::uint64_t> counts{};  // arrivals of each signal before the save
  };
  /// Notes that a save begins. The signals so far are not pending until it fails.
  Answer begin();
  /// Notes the end of a save. After a failure, what no step on disk has answered is pending again.
  void end(const Answer& answer, bool saved);

 private:
  struct Caught {
    int signal;
    std::uint64_t before;    // arrivals before start()
    std::uint64_t answered;  // arrivals before the last save that succeeded
    std::uint64_t taken;     // arrivals before the last save that began and has not failed
  };
  int pending_locked() const noexcept;

  mutable std::mutex mutex_;
  std::vector<Caught> caught_;
};

}  // namespace stele::inline v0::detail
