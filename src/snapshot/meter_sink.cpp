#include "snapshot/meter_sink.hpp"

#include <algorithm>

namespace stele::inline v0::detail {

namespace {
/// Bytes between two calls of the callback; a multiple of every element size.
constexpr std::size_t step = std::size_t{4} << 20;
}  // namespace

Status MeterSink::piece(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), step));
    STELE_TRY(next_.piece(now));
    STELE_TRY(meter_.add(now.size()));
    bytes = bytes.subspan(now.size());
  }
  return {};
}

}  // namespace stele::inline v0::detail
