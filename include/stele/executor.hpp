// Executor: threads of yours for a save or load to work on.
#pragma once

#include <cstddef>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// A thread pool of yours. Without one, a save or load that uses several threads starts them, and they end with it.
class STELE_EXPORT Executor {
 public:
  virtual ~Executor();
  /// The most parts that run at a time, the caller's thread among them.
  virtual unsigned concurrency() const noexcept = 0;
  /// Calls part(context, i) once for each i below `count`, in any order and at the same time or not, and returns when
  /// all have ended. `part` throws nothing. Several threads may call run() at a time.
  virtual void run(std::size_t count, void (*part)(void* context, std::size_t i), void* context) = 0;
};

namespace detail {
/// How many threads a save or load may use, and whose.
struct Workers {
  unsigned threads = 1;
  Executor* executor = nullptr;
};
}  // namespace detail

}  // namespace v0
}  // namespace stele
