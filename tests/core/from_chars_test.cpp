// Floats from decimals where the standard library lacks them, beside the standard library that has them.
#include <doctest/doctest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "base/from_chars.hpp"

namespace from_chars_test {

#ifdef __cpp_lib_to_chars

namespace {

template <class T>
void compare(std::string_view text) {
  CAPTURE(text);
  T own = 7, standard = 7;
  const char* const end = text.data() + text.size();
  const auto a = stele::detail::float_from_chars(text.data(), end, own);
  const auto b = std::from_chars(text.data(), end, standard);
  CHECK(a.ptr - text.data() == b.ptr - text.data());
  CHECK(a.ec == b.ec);
  CHECK(std::signbit(own) == std::signbit(standard));
  CHECK((own == standard || (std::isnan(own) && std::isnan(standard))));
}

}  // namespace

TEST_CASE_TEMPLATE("from_chars: floats equal those of the standard library", T, float, double) {
  for (const char* text : {"",
                           "-",
                           "+1",
                           " 1",
                           ".",
                           ".5",
                           "5.",
                           "-.5e1",
                           "1e",
                           "1e+",
                           "1e-",
                           "1e5x",
                           "0x10",
                           "1,5",
                           "1.5.5",
                           "--1",
                           "e5",
                           "1e400",
                           "-1e400",
                           "1e-400",
                           "-1e-400",
                           "0e400",
                           "0.000e-999",
                           "4.9e-324",
                           "2e-324",
                           "1e-45",
                           "1e-46",
                           "3.5e38",
                           "1.7976931348623157e308",
                           "1.7976931348623159e308",
                           "inf",
                           "-INF",
                           "Infinity",
                           "infinitx",
                           "nan",
                           "-NaN",
                           "na",
                           "9007199254740993",
                           "0.1",
                           "16777217",
                           "5G",
                           "1e99999999999",
                           "1e-99999999999"}) {
    compare<T>(text);
  }
  compare<T>("0." + std::string(500, '0') + "1e500");
  compare<T>(std::string(300, '9'));
  compare<T>(std::string(1000, '9'));
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const T number = std::bit_cast<T>(static_cast<Bits>(random()));
    char text[512];
    const auto end = std::to_chars(text, text + sizeof text, number, std::chars_format::general, 1 + i % 20).ptr;
    compare<T>(std::string_view(text, static_cast<std::size_t>(end - text)));
  }
}

#endif

}  // namespace from_chars_test
