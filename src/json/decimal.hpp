// Parses decimal numbers as floats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "base/from_chars.hpp"

namespace stele::inline v0::detail::json {

/// Returns true if a JSON number outside the range of floats is too small, rather than too large.
inline bool is_tiny(std::string_view number) noexcept {
  constexpr std::int64_t far = 1'000'000'000;  // limit of an exponent and of a number of digits
  std::int64_t magnitude = 0;                  // magnitude of the first digit that is not 0: 0 for 0.1, 1 for 1
  bool point = false;
  bool found = false;
  std::size_t i = number.starts_with('-') ? 1 : 0;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '.') {
      point = true;
    } else {
      found = found || number[i] != '0';
      magnitude += found && !point ? 1 : !found && point ? -1 : 0;
    }
  }
  std::int64_t exponent = 0;
  const bool negative = i + 1 < number.size() && number[i + 1] == '-';
  for (++i; i < number.size(); ++i) {
    if (number[i] >= '0' && number[i] <= '9') exponent = std::min(far, exponent * 10 + (number[i] - '0'));
  }
  return magnitude + (negative ? -exponent : exponent) <= 0;
}

/// Parses the float nearest to a JSON number. A number too small for any float except zero becomes zero with its sign,
/// as when a float is narrowed. Returns false if the number is too large, or is not a number.
template <class T>
bool parse_float(std::string_view text, T& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = from_chars(text.data(), end, out);
  if (stop != end) return false;
  if (error == std::errc()) return true;
  if (error != std::errc::result_out_of_range || !is_tiny(text)) return false;
  out = text.starts_with('-') ? -T{0} : T{0};
  return true;
}

}  // namespace stele::inline v0::detail::json
