// Threads and locks. A library built with STELE_THREADS=OFF, for systems without threads, starts none: all work is done
// in the caller's thread, the locks do nothing, and a model must be used by one thread at a time.
#pragma once

#include <utility>

#ifndef STELE_THREADS
#define STELE_THREADS 1
#endif

#if STELE_THREADS
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "stele/result.hpp"
#endif

namespace stele::inline v0::detail {

#if STELE_THREADS

using Mutex = std::mutex;
using Lock = std::unique_lock<std::mutex>;
using Condition = std::condition_variable;

/// A thread; the destructor joins it. Starts no thread if the system lacks a thread or memory for it.
class Thread {
 public:
  Thread() noexcept = default;
  template <class Work>
  explicit Thread(Work work) noexcept {
    // The caller does the work if this fails.
    static_cast<void>(guarded([&]() -> Status {
      thread_ = std::thread(std::move(work));
      return {};
    }));
  }
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    return *this;
  }
  ~Thread() { join(); }
  bool started() const noexcept { return thread_.joinable(); }
  void join() noexcept {
    if (started()) thread_.join();
  }

 private:
  std::thread thread_;
};

/// Returns the number of threads that run at the same time; 0 if that is not known.
inline unsigned processors() noexcept { return std::thread::hardware_concurrency(); }

#else

struct Mutex {};

class Lock {
 public:
  explicit Lock(Mutex& /*mutex*/) noexcept {}
  void lock() noexcept {}
  void unlock() noexcept {}
};

/// Nothing waits: what a wait would wait for was done before by the same thread.
struct Condition {
  template <class Ready>
  void wait(Lock& /*lock*/, const Ready& /*ready*/) noexcept {}
  void notify_one() noexcept {}
  void notify_all() noexcept {}
};

class Thread {
 public:
  Thread() noexcept = default;
  template <class Work>
  explicit Thread(const Work& /*work*/) noexcept {}
  bool started() const noexcept { return false; }
  void join() noexcept {}
};

inline unsigned processors() noexcept { return 1; }

#endif

}  // namespace stele::inline v0::detail
