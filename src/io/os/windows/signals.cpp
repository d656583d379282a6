// Counts signals that ask a program to save. Never acts on them.
#include <array>
#include <atomic>
#include <csignal>
#include <mutex>
#include <string>

#include "io/os/os.hpp"

namespace stele::inline v0::detail::os {
namespace {

constexpr int signal_count_max = 23;  // NSIG of the C runtime

struct Caught {
  std::atomic<std::uint64_t> count{0};
  int users = 0;
  void (*before)(int) = nullptr;
};
std::array<Caught, signal_count_max> all_caught;
std::mutex catching;

extern "C" void count_signal(int signal) {
  std::signal(signal, count_signal);  // the runtime restores the default before it calls a handler
  all_caught[static_cast<std::size_t>(signal)].count.fetch_add(1, std::memory_order_relaxed);
}

bool valid(int signal) noexcept { return signal > 0 && signal < signal_count_max; }

}  // namespace

Status catch_signal(int signal) {
  const auto refuse = [&] {
    return Error(Errc::invalid_argument, "the signal cannot be caught").found(std::to_string(signal));
  };
  if (!valid(signal)) return refuse();
  const std::lock_guard lock(catching);
  Caught& caught = all_caught[static_cast<std::size_t>(signal)];
  if (caught.users++ != 0) return {};
  caught.before = std::signal(signal, count_signal);
  if (caught.before != SIG_ERR) return {};
  --caught.users;
  return refuse();
}

void release_signal(int signal) noexcept {
  if (!valid(signal)) return;
  const std::lock_guard lock(catching);
  Caught& caught = all_caught[static_cast<std::size_t>(signal)];
  if (caught.users != 0 && --caught.users == 0) std::signal(signal, caught.before);
}

std::uint64_t signal_count(int signal) noexcept {
  return valid(signal) ? all_caught[static_cast<std::size_t>(signal)].count.load(std::memory_order_relaxed) : 0;
}

}  // namespace stele::inline v0::detail::os
