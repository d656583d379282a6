#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

namespace stele::inline v0 {

Executor::~Executor() = default;

namespace detail {

namespace {
// Maximum number of threads of one save or load: each takes memory, and more threads would only wait for the memory
// bus.
constexpr unsigned max_threads = 256;
}  // namespace

Workers workers_of(unsigned threads, Executor* executor) noexcept {
  const unsigned available = executor != nullptr ? executor->concurrency() : std::thread::hardware_concurrency();
  if (threads == 0 || (executor != nullptr && threads > available)) threads = std::max(1U, available);
  return {std::min(threads, max_threads), executor};
}

namespace {

class Work {
 public:
  Work(std::size_t count, const std::function<void(std::size_t)>& work) : count_(count), work_(work) {}

  void run() noexcept {
    try {
      for (std::size_t i = next_++; i < count_; i = next_++) work_(i);
    } catch (...) {
      next_ = count_;
      const std::lock_guard lock(mutex_);
      if (!exception_) exception_ = std::current_exception();
    }
  }
  void finish() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<std::size_t> next_{0};
  std::size_t count_;
  const std::function<void(std::size_t)>& work_;
  std::exception_ptr exception_;
  std::mutex mutex_;
};

}  // namespace

void parallel(const Workers& workers, std::size_t count, const std::function<void(std::size_t)>& work) {
  Work all(count, work);
  const std::size_t wanted = std::min<std::size_t>(workers.threads, count);
  if (workers.executor != nullptr && wanted > 1) {
    workers.executor->run(
        wanted, [](void* context, std::size_t) { static_cast<Work*>(context)->run(); }, &all);
    return all.finish();
  }
  std::vector<Helper> others;
  others.reserve(wanted);
  while (others.size() + 1 < wanted) {
    others.emplace_back([&]() noexcept { all.run(); });
    if (!others.back().started()) break;  // the threads that did start do all the work
  }
  all.run();
  others.clear();
  all.finish();
}

void beside(const Workers& workers, const std::function<void()>& other, const std::function<void()>& mine) {
  if (workers.executor != nullptr || workers.threads == 1) {
    return parallel(workers, 2, [&](std::size_t i) { i == 0 ? mine() : other(); });
  }
  std::exception_ptr thrown;
  Helper second([&]() noexcept {
    try {
      other();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  if (!second.started()) other();
  mine();
  second.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace detail
}  // namespace stele::inline v0
