#include "base/meter.hpp"

#include <algorithm>

namespace stele::inline v0::detail {

Status Meter::add(std::uint64_t bytes) {
  if (idle()) return {};
  const std::lock_guard lock(mutex_);
  // A format may read a tensor twice.
  progress_.done = std::min(progress_.done + bytes, progress_.total);
  cancelled_ = cancelled_ || !callback_(progress_);
  return cancelled_ ? Error(Errc::cancelled, "the progress callback stopped the operation") : Status();
}

}  // namespace stele::inline v0::detail
