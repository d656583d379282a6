// Counts signals that ask a program to save. Never acts on them.
#ifndef __wasi__
#include <csignal>
#endif

#include <array>
#include <atomic>
#include <string>

#include "base/threads.hpp"
#include "io/os/os.hpp"

namespace stele::inline v0::detail::os {

#ifdef __wasi__
Status catch_signal(int signal) {
  return Error(Errc::unsupported, "WebAssembly has no signals").found(std::to_string(signal));
}
void release_signal(int) noexcept {}
std::uint64_t signal_count(int) noexcept { return 0; }
#else
namespace {

extern "C" {
static void count_signal(int signal);  // the anonymous namespace does not make a C function local
}

#ifdef _WIN32
constexpr int signal_count_max = 23;  // NSIG of the C runtime
using Handling = void (*)(int);
bool count(int signal, Handling& before) noexcept {
  before = std::signal(signal, count_signal);
  return before != SIG_ERR;
}
void restore(int signal, const Handling& before) noexcept { std::signal(signal, before); }
#else
constexpr int signal_count_max = 65;
using Handling = struct sigaction;
bool count(int signal, Handling& before) noexcept {
  struct sigaction counting = {};
  counting.sa_handler = count_signal;
  counting.sa_flags = SA_RESTART;
  sigemptyset(&counting.sa_mask);
  return ::sigaction(signal, &counting, &before) == 0;
}
void restore(int signal, const Handling& before) noexcept { ::sigaction(signal, &before, nullptr); }
#endif

struct Caught {
  std::atomic<std::uint64_t> count{0};  // lock-free, because the signal handler writes it
  int users = 0;
  Handling before = {};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
std::array<Caught, signal_count_max> all_caught;
Mutex catching;

void count_signal(int signal) {
#ifdef _WIN32
  std::signal(signal, count_signal);  // the runtime restores the default before it calls a handler
#endif
  all_caught[static_cast<std::size_t>(signal)].count.fetch_add(1, std::memory_order_relaxed);
}

bool valid(int signal) noexcept { return signal > 0 && signal < signal_count_max; }

}  // namespace

Status catch_signal(int signal) {
  const auto refuse = [&] {
    return Error(Errc::invalid_argument, "the signal cannot be caught").found(std::to_string(signal));
  };
  if (!valid(signal)) return refuse();
  const Lock lock(catching);
  Caught& caught = all_caught[static_cast<std::size_t>(signal)];
  if (caught.users++ != 0) return {};
  if (count(signal, caught.before)) return {};
  --caught.users;
  return refuse();
}

void release_signal(int signal) noexcept {
  if (!valid(signal)) return;
  const Lock lock(catching);
  Caught& caught = all_caught[static_cast<std::size_t>(signal)];
  if (caught.users != 0 && --caught.users == 0) restore(signal, caught.before);
}

std::uint64_t signal_count(int signal) noexcept {
  return valid(signal) ? all_caught[static_cast<std::size_t>(signal)].count.load(std::memory_order_relaxed) : 0;
}
#endif

}  // namespace stele::inline v0::detail::os
