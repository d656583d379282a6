// The signals of a save policy, caught from the manager's opening until its destruction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// Catches signals, and releases them in the destructor. All members except start() are safe to call from several
/// threads.
class CaughtSignals {
 public:
  CaughtSignals() = default;
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals() { release(); }
  /// Lets the signals have their previous handling again.
  void release() noexcept;
  /// Catches `signals` from now on. Errors: invalid_argument (a signal that cannot be caught).
  Status start(const std::vector<int>& signals);
  /// Returns a signal that has arrived and that no save has answered, or 0.
  int pending() const;
  /// Returns true if the signal has arrived since start().
  bool arrived(int signal) const noexcept;
  /// The signals that a save answers if it succeeds.
  struct Answer {
    int signal = 0;                       // the pending signal, or 0
    std::vector<std::uint64_t> counts{};  // arrivals of each signal before the save
  };
  /// Records the start of a save. Signals that have arrived so far are not pending, unless the save fails.
  Answer begin();
  /// Records the end of a save. After a failure, the signals that no step on disk has answered are pending again.
  void end(const Answer& answer, bool saved);

 private:
  struct Caught {
    int signal;
    std::uint64_t before;    // arrivals before start()
    std::uint64_t answered;  // arrivals before the last successful save
    std::uint64_t taken;     // arrivals before the last started save that has not failed
  };
  int pending_locked() const noexcept;

  mutable Mutex mutex_;
  std::vector<Caught> caught_;
};

}  // namespace stele::inline v0::detail
