// Executor: the user's threads for a save or load.
#pragma once

#include <cstddef>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// The user's thread pool. Without one, a save or load that uses several threads starts them, and ends them when it
/// returns.
class STELE_EXPORT Executor {
 public:
  virtual ~Executor();
  /// Returns the maximum concurrency: the number of parts that run at the same time, including the caller's thread.
  virtual unsigned concurrency() const noexcept = 0;
  /// Calls part(context, i) once for each i below `count`, in any order, possibly concurrently, and returns after all
  /// calls have ended. `part` does not throw. Several threads may call run() at the same time.
  virtual void run(std::size_t count, void (*part)(void* context, std::size_t i), void* context) = 0;
};

namespace detail {
/// The thread limit of a save or load, and its thread pool.
struct Workers {
  unsigned threads = 1;
  Executor* executor = nullptr;
};
}  // namespace detail

}  // namespace stele::inline v0
