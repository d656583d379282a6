#include "signals.hpp"

#include <algorithm>

#include "io/os/os.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

CaughtSignals::~CaughtSignals() {
  for (const Caught& caught : caught_) os::release_signal(caught.signal);
}

Status CaughtSignals::start(const std::vector<int>& signals) {
  caught_.reserve(signals.size());
  for (const int signal : signals) {
    STELE_TRY(os::catch_signal(signal));
    const std::uint64_t count = os::signal_count(signal);
    caught_.push_back({signal, count, count});
  }
  return {};
}

int CaughtSignals::pending() const noexcept {
  for (const Caught& caught : caught_) {
    if (os::signal_count(caught.signal) != caught.answered) return caught.signal;
  }
  return 0;
}

bool CaughtSignals::arrived(int signal) const noexcept {
  return std::any_of(caught_.begin(), caught_.end(), [&](const Caught& caught) {
    return caught.signal == signal && os::signal_count(signal) != caught.before;
  });
}

int CaughtSignals::answer() noexcept {
  const int signal = pending();
  for (Caught& caught : caught_) caught.answered = os::signal_count(caught.signal);
  return signal;
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
