#include "signals.hpp"

#include <algorithm>

#include "base/threads.hpp"
#include "io/os/os.hpp"

namespace stele::inline v0::detail {

void CaughtSignals::release() noexcept {
  for (const Caught& caught : caught_) os::release_signal(caught.signal);
  caught_.clear();
}

Status CaughtSignals::start(const std::vector<int>& signals) {
  caught_.reserve(signals.size());
  for (const int signal : signals) {
    STELE_TRY(os::catch_signal(signal));
    const std::uint64_t count = os::signal_count(signal);
    caught_.push_back({signal, count, count, count});
  }
  return {};
}

int CaughtSignals::pending_locked() const noexcept {
  for (const Caught& caught : caught_) {
    if (os::signal_count(caught.signal) != caught.taken) return caught.signal;
  }
  return 0;
}

int CaughtSignals::pending() const {
  const Lock lock(mutex_);
  return pending_locked();
}

bool CaughtSignals::arrived(int signal) const noexcept {
  return std::any_of(caught_.begin(), caught_.end(), [&](const Caught& caught) {
    return caught.signal == signal && os::signal_count(signal) != caught.before;
  });
}

CaughtSignals::Answer CaughtSignals::begin() {
  const Lock lock(mutex_);
  Answer answer{pending_locked(), {}};
  for (const Caught& caught : caught_) answer.counts.push_back(os::signal_count(caught.signal));
  for (std::size_t i = 0; i < caught_.size(); ++i) caught_[i].taken = answer.counts[i];
  return answer;
}

void CaughtSignals::end(const Answer& answer, bool saved) {
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < caught_.size(); ++i) {
    Caught& caught = caught_[i];
    if (saved) caught.answered = std::max(caught.answered, answer.counts[i]);
    caught.taken = saved ? std::max(caught.taken, caught.answered) : caught.answered;
  }
}

}  // namespace stele::inline v0::detail
