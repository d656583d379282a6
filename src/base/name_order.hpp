// Sorts names, for formats and for lookups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace stele::inline v0::detail {

/// Memory for sorting, for each name, in addition to the result.
inline constexpr std::uint64_t name_order_memory = 24;

/// Returns the numbers 0 … count-1 in the order of name(i), a std::string_view. Equal names keep their relative order.
template <class Name>
std::vector<std::uint32_t> order_by_name(std::uint32_t count, Name name) {
  // The names of one model have a common prefix and are scattered in memory. The first 16 characters in which they may
  // differ are compared as two numbers, which are sufficient in most cases.
  struct Key {
    std::uint64_t head, next;
    std::uint32_t i;
  };
  static_assert(sizeof(Key) <= name_order_memory);
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
    unsigned char head[16] = {};
    std::copy_n(rest.begin(), std::min(rest.size(), sizeof head), head);
    const auto number = [&](std::size_t from) {
      std::uint64_t n = 0;
      for (std::size_t k = from; k < from + 8; ++k) n = n << 8 | head[k];
      return n;
    };
    keys[i] = {number(0), number(8), i};
  }
  const auto before = [&](const Key& a, const Key& b) {
    if (a.head != b.head) return a.head < b.head;
    if (a.next != b.next) return a.next < b.next;
    const int order = name(a.i).compare(name(b.i));
    return order != 0 ? order < 0 : a.i < b.i;
  };
  if (!std::is_sorted(keys.begin(), keys.end(), before)) std::sort(keys.begin(), keys.end(), before);
  std::vector<std::uint32_t> order(count);
  std::transform(keys.begin(), keys.end(), order.begin(), [](const Key& k) { return k.i; });
  return order;
}

}  // namespace stele::inline v0::detail
