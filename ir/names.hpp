// Lists of names of operators.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

template <std::size_t N>
constexpr bool is_one_of(const std::array<std::string_view, N>& names, std::string_view op) noexcept {
  return std::find(names.begin(), names.end(), op) != names.end();
}

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
