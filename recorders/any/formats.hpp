// The registered formats.
#pragma once

#include <algorithm>

#include "stele/recorders/any.hpp"

namespace stele::inline v0::detail {

constexpr const char* formats_hint = "see stele::formats()";

/// Returns the first member of the families for which `accepts` returns true, or null.
template <class F>
const FormatFamily::Member* find_member_in(std::span<const FormatFamily> families, const F& accepts) {
  for (const FormatFamily& family : families) {
    const auto found = std::find_if(family.members.begin(), family.members.end(), accepts);
    if (found != family.members.end()) return &*found;
  }
  return nullptr;
}
/// The same, of all families.
template <class F>
const FormatFamily::Member* find_member(const F& accepts) {
  return find_member_in(format_families(), accepts);
}

/// Returns the number of the library's families, which come before those that programs have added.
std::size_t own_families() noexcept;

}  // namespace stele::inline v0::detail
