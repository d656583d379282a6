// Runs work on several threads within one call. The threads end with the call.
#pragma once

#include <cstddef>
#include <functional>

#include "base/threads.hpp"
#include "stele/executor.hpp"

namespace stele::inline v0::detail {

/// Returns the threads that the options of a save or load select.
STELE_EXPORT Workers workers_of(unsigned threads, Executor* executor) noexcept;
template <class Options>
Workers workers_of(const Options& options) noexcept {
  return workers_of(options.threads, options.executor);
}

/// Calls work(i) once for each i below `count`, on the threads of `workers` and on the caller's thread; with one
/// thread, in order. Calls begin in increasing order of i. If `work` throws, the calls that have not begun are skipped,
/// and the exception is rethrown after all calls have ended.
STELE_EXPORT void parallel(const Workers& workers, std::size_t count, const std::function<void(std::size_t)>& work);

/// Runs both functions: `other` on a second thread if possible, `mine` on the caller's thread (with an executor, on any
/// thread). Rethrows their exceptions.
STELE_EXPORT void beside(const Workers& workers, const std::function<void()>& other, const std::function<void()>& mine);

}  // namespace stele::inline v0::detail
