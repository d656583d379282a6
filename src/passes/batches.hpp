// Visits elements as doubles, batch by batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "snapshot/converting.hpp"

namespace stele::inline v0::detail {

/// Number of intermediate doubles; they fit in the cache and on the stack.
inline constexpr std::size_t doubles_at_once = 1024;

/// Calls `visit` with the elements as doubles, batch by batch. `first`: the index of the first element, for errors.
template <class Visit>
Status each_batch(DType dtype, std::span<const std::byte> bytes, std::uint64_t first, Visit visit) {
  double numbers[doubles_at_once];
  const std::size_t size = element_size(dtype);
  for (std::size_t left = bytes.size() / size; left != 0;) {
    const std::size_t n = std::min(left, doubles_at_once);
    const ConvertOutcome outcome = convert(dtype, bytes.data() + bytes.size() - left * size, DType::f64,
                                           reinterpret_cast<std::byte*>(numbers), n, {.allow_kind_change = true});
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, dtype, DType::f64, first);
    STELE_TRY(visit(std::span<double>(numbers, n)));
    left -= n;
    first += n;
  }
  return {};
}

}  // namespace stele::inline v0::detail
