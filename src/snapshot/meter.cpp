#include "snapshot/meter.hpp"

#include <algorithm>

namespace stele {
inline namespace v0 {
namespace detail {

namespace {
/// Between two questions; a multiple of every element's size.
constexpr std::size_t step = std::size_t{4} << 20;
}  // namespace

Status Meter::add(std::uint64_t bytes) {
  if (idle()) return {};
  const std::lock_guard lock(mutex_);
  // A format may pass over a tensor twice.
  progress_.done = std::min(progress_.done + bytes, progress_.total);
  cancelled_ = cancelled_ || !callback_(progress_);
  return cancelled_ ? Error(Errc::cancelled, "stopped by the progress callback") : Status();
}

Status MeterSink::piece(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), step));
    STELE_TRY(next_.piece(now));
    STELE_TRY(meter_.add(now.size()));
    bytes = bytes.subspan(now.size());
  }
  return {};
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
