// Searches lists of operator names.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace stele::inline v0::detail::ir {

template <std::size_t N>
constexpr bool is_one_of(const std::array<std::string_view, N>& names, std::string_view op) noexcept {
  return std::find(names.begin(), names.end(), op) != names.end();
}

}  // namespace stele::inline v0::detail::ir
