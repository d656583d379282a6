#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <vector>

#include "base/threads.hpp"

namespace stele::inline v0 {

Executor::~Executor() = default;

namespace detail {

namespace {
// Maximum number of threads of one save or load: each takes memory, and more threads would only wait for the memory
// bus.
constexpr unsigned max_threads = 256;
}  // namespace

Workers workers_of(unsigned threads, Executor* executor) noexcept {
  const unsigned available = executor != nullptr ? executor->concurrency() : processors();
  if (threads == 0 || (executor != nullptr && threads > available)) threads = std::max(1U, available);
  return {std::min(threads, max_threads), executor};
}

namespace {

class Work {
 public:
  Work(std::size_t count, const std::function<void(std::size_t)>& work) : count_(count), work_(work) {}

  void run() noexcept {
#if STELE_EXCEPTIONS
    try {
      run_all();
    } catch (...) {
      next_ = count_;
      const Lock lock(mutex_);
      if (!exception_) exception_ = std::current_exception();
    }
#else
    run_all();
#endif
  }
  void finish() const {
#if STELE_EXCEPTIONS
    if (exception_) std::rethrow_exception(exception_);
#endif
  }

 private:
  void run_all() {
    for (std::size_t i = next_++; i < count_; i = next_++) work_(i);
  }

  std::atomic<std::size_t> next_{0};
  std::size_t count_;
  const std::function<void(std::size_t)>& work_;
#if STELE_EXCEPTIONS
  std::exception_ptr exception_;
  Mutex mutex_;
#endif
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
  std::vector<Thread> others;
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
  const std::function<void(std::size_t)> one = [&](std::size_t) { other(); };
  Work work(1, one);
  Thread second([&]() noexcept { work.run(); });
  if (!second.started()) work.run();
  mine();
  second.join();
  work.finish();
}

}  // namespace detail
}  // namespace stele::inline v0
