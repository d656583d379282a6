#include "base/from_chars.hpp"

#if __has_include(<xlocale.h>)
#include <xlocale.h>  // macOS
#endif
#include <clocale>
#include <cstdlib>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

namespace stele::inline v0::detail {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Returns the end of the longest decimal number that begins at `first`, or `first`. Sets `zero` if all of its digits
/// are 0.
const char* end_of_number(const char* first, const char* last, bool& zero) noexcept {
  const char* p = first;
  bool found = false;
  zero = true;
  const auto digits = [&] {
    for (; p != last && is_digit(*p); ++p) found = true, zero = zero && *p == '0';
  };
  digits();
  if (p != last && *p == '.') ++p, digits();
  if (!found) return first;
  if (p == last || (*p != 'e' && *p != 'E')) return p;
  const char* exponent = p + 1;
  if (exponent != last && (*exponent == '+' || *exponent == '-')) ++exponent;
  if (exponent == last || !is_digit(*exponent)) return p;
  return std::find_if_not(exponent, last, is_digit);
}

/// Returns true if the text begins with this word in any case.
bool begins_with(const char* first, const char* last, std::string_view word) noexcept {
  return static_cast<std::size_t>(last - first) >= word.size() &&
         std::equal(word.begin(), word.end(), first, [](char a, char b) { return a == (b | 0x20); });
}

// Windows' standard libraries have std::from_chars of floats; Android's C library has a point in every locale.
#if !defined(_WIN32) && !defined(__ANDROID__)
/// Returns the locale in which the decimal point is a point.
locale_t plain_locale() {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return plain;
}
void convert(const char* text, float& out) { out = ::strtof_l(text, nullptr, plain_locale()); }
void convert(const char* text, double& out) { out = ::strtod_l(text, nullptr, plain_locale()); }
#else
void convert(const char* text, float& out) { out = std::strtof(text, nullptr); }
void convert(const char* text, double& out) { out = std::strtod(text, nullptr); }
#endif

template <class T>
std::from_chars_result parse(const char* first, const char* last, T& out) {
  const bool negative = first != last && *first == '-';
  const char* const begin = first + (negative ? 1 : 0);
  const T sign = negative ? T{-1} : T{1};
  for (const std::string_view word : {"infinity", "inf", "nan"}) {
    if (!begins_with(begin, last, word)) continue;
    out = std::copysign(word == "nan" ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity(), sign);
    return {begin + word.size(), std::errc()};
  }
  bool zero = true;
  const char* const end = end_of_number(begin, last, zero);
  if (end == begin) return {first, std::errc::invalid_argument};
  const auto size = static_cast<std::size_t>(end - first);
  T number = 0;
  char text[128];
  if (size < sizeof text) {
    std::memcpy(text, first, size);
    text[size] = '\0';
    convert(text, number);
  } else {
    convert(std::string(first, end).c_str(), number);
  }
  if (std::isinf(number) || (number == 0 && !zero)) return {end, std::errc::result_out_of_range};
  out = number;
  return {end, std::errc()};
}

}  // namespace

std::from_chars_result float_from_chars(const char* first, const char* last, float& out) {
  return parse(first, last, out);
}
std::from_chars_result float_from_chars(const char* first, const char* last, double& out) {
  return parse(first, last, out);
}

}  // namespace stele::inline v0::detail
