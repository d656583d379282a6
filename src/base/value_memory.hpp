// Computes the memory of Values, for budgets.
#pragma once

#include <cstdint>

#include "stele/value.hpp"

namespace stele::inline v0::detail {

/// Returns the approximate heap memory of a Value in bytes.
inline std::uint64_t heap_of(const Value& value) {
  std::uint64_t bytes = 0;
  if (const auto* s = value.as_string()) bytes = s->size();
  if (const auto* b = value.as_bytes()) bytes = b->size();
  if (const auto* list = value.as_list()) {
    for (const Value& v : *list) bytes += sizeof v + heap_of(v);
  }
  if (const auto* map = value.as_map()) {
    for (const auto& item : *map) bytes += sizeof item + item.first.size() + heap_of(item.second);
  }
  return bytes;
}

}  // namespace stele::inline v0::detail
