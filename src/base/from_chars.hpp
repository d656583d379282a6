// std::from_chars, with an own version for floats if the standard library supports only integers (libc++ before version
// 20).
#pragma once

#include <charconv>
#include <concepts>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// std::from_chars without it, in the format `general`. Allocates memory for more than 127 characters.
std::from_chars_result float_from_chars(const char* first, const char* last, float& out);
std::from_chars_result float_from_chars(const char* first, const char* last, double& out);

template <std::floating_point T>
std::from_chars_result from_chars(const char* first, const char* last, T& out) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, out);
#else
  return float_from_chars(first, last, out);
#endif
}
template <std::integral T>
std::from_chars_result from_chars(const char* first, const char* last, T& out, int base = 10) {
  return std::from_chars(first, last, out, base);
}

}  // namespace stele::inline v0::detail
