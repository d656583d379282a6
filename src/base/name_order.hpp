// Sorting by name, for formats and for lookups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace stele::inline v0::detail {

/// Returns the numbers 0 … count-1 in the order of name(i), a std::string_view. Numbers with equal names keep their
/// order.
template <class Name>
std::vector<std::uint32_t> order_by_name(std::uint32_t count, Name name) {
  // Names of one model have a common prefix, and are scattered in memory. The first 8 characters in which they may
  // differ are compared as one number, which mostly decides.
  struct Key {
    std::uint64_t head;
    std::uint32_t i;
  };
  std::size_t alike = count != 0 ? name(0).size() : 0;
  for (std::uint32_t i = 1; i < count; ++i) {
    const std::string_view first = name(0).substr(0, alike);
    const std::string_view other = name(i);
    alike = static_cast<std::size_t>(std::mismatch(first.begin(), first.end(), other.begin(), other.end()).first -
                                     first.begin());
  }
  std::vector<Key> keys(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view rest = name(i).substr(alike);
    std::uint64_t head = 0;
    for (std::size_t k = 0; k < 8; ++k) head = head << 8 | (k < rest.size() ? static_cast<unsigned char>(rest[k]) : 0U);
    keys[i] = {head, i};
  }
  const auto before = [&](const Key& a, const Key& b) {
    if (a.head != b.head) return a.head < b.head;
    const int order = name(a.i).compare(name(b.i));
    return order != 0 ? order < 0 : a.i < b.i;
  };
  if (!std::is_sorted(keys.begin(), keys.end(), before)) std::sort(keys.begin(), keys.end(), before);
  std::vector<std::uint32_t> order(count);
  std::transform(keys.begin(), keys.end(), order.begin(), [](const Key& k) { return k.i; });
  return order;
}

}  // namespace stele::inline v0::detail
