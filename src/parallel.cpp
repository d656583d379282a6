#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace stele {
inline namespace v0 {
namespace detail {

unsigned thread_count(unsigned option) noexcept {
  return option != 0 ? option : std::max(1U, std::thread::hardware_concurrency());
}

void parallel(unsigned threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr thrown;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const std::size_t wanted = std::min<std::size_t>(threads, count);
  others.reserve(wanted);
  try {
    while (others.size() + 1 < wanted) others.emplace_back(run);
  } catch (const std::system_error&) {
    // Those that there are do all of it.
  }
  run();
  for (std::thread& t : others) t.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
