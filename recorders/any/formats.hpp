// The registered formats.
#pragma once

#include <algorithm>

#include "stele/recorders/any.hpp"

namespace stele::inline v0::detail {

constexpr const char* formats_hint = "see stele::formats()";

/// Returns the first member of all families for which `accepts` returns true, or null.
template <class F>
const FormatFamily::Member* find_member(const F& accepts) {
  for (const FormatFamily& family : format_families()) {
    const auto found = std::find_if(family.members.begin(), family.members.end(), accepts);
    if (found != family.members.end()) return &*found;
  }
  return nullptr;
}

}  // namespace stele::inline v0::detail
