#include "base/meter.hpp"

#include <algorithm>

#include "base/threads.hpp"

namespace stele::inline v0::detail {

Status Meter::add(std::uint64_t bytes) {
  if (idle()) return {};
  const Lock lock(mutex_);
  // A format may read a tensor twice.
  progress_.done = std::min(progress_.done + bytes, progress_.total);
  cancelled_ = cancelled_ || !callback_(progress_);
  return cancelled_ ? Error(Errc::cancelled, "the progress callback stopped the operation") : Status();
}

}  // namespace stele::inline v0::detail
