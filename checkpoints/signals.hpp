// The signals of a save policy, from when a manager is opened until its end.
#pragma once

#include <cstdint>
#include <vector>

#include "stele/result.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Catches signals, and releases them in the end.
class CaughtSignals {
 public:
  CaughtSignals() = default;
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals();
  /// Catches these signals from now on. Errors: invalid_argument (a signal that cannot be caught).
  Status start(const std::vector<int>& signals);
  /// Returns a signal that no save has answered, or 0.
  int pending() const noexcept;
  /// Returns true if the signal has arrived since start().
  bool arrived(int signal) const noexcept;
  /// Notes that a save answers all signals so far. Returns pending().
  int answer() noexcept;

 private:
  struct Caught {
    int signal;
    std::uint64_t before;    // arrivals before start()
    std::uint64_t answered;  // arrivals before the last answer()
  };
  std::vector<Caught> caught_;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
