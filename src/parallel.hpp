// Work on several threads, for what is one call from outside. Nothing stays behind: the threads end with the call.
#pragma once

#include <cstddef>
#include <functional>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// The threads that an option means: 0 is as many as the machine has.
STELE_EXPORT unsigned thread_count(unsigned option) noexcept;

/// Calls work(i) once for each i below `count`, on up to `threads` threads, the caller's among them; with 1 none is
/// started. What `work` throws is thrown here, when all have ended.
STELE_EXPORT void parallel(unsigned threads, std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace detail
}  // namespace v0
}  // namespace stele
