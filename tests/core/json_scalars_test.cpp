// Numbers and strings of the private JSON reader.
#include "json/json.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "json_outcome.hpp"

namespace json_scalars_test {

using namespace stele;
using namespace stele::detail::json;
using namespace std::string_literals;
using namespace std::string_view_literals;
using namespace stele_test::json_text;

namespace {

template <class T>
Errc number(bool (Reader::*read)(T&) noexcept, std::string_view text, T& out) {
  Errc code = Errc::none;
  // Alone and inside an array: numbers at the end of the text, and followed by another character, take other paths.
  for (const std::string& full :
       {std::string(text), "[" + std::string(text) + "]", "[ " + std::string(text) + " ,1]"}) {
    Reader r(full);
    const bool array = full.front() == '[';
    if (array) CHECK((r.begin_array() && r.next_element()));
    T value{};
    if ((r.*read)(value)) {
      while (array && r.next_element()) r.skip_value();
      r.finish();
    }
    code = outcome(r, full).code;
    if (code == Errc::none) {
      out = value;
    } else {
      break;
    }
  }
  return code;
}
Errc u64(std::string_view text, std::uint64_t* out = nullptr) {
  std::uint64_t value = 0;
  const Errc code = number(&Reader::read_u64, text, value);
  if (out != nullptr) *out = value;
  return code;
}
Errc i64(std::string_view text, std::int64_t* out = nullptr) {
  std::int64_t value = 0;
  const Errc code = number(&Reader::read_i64, text, value);
  if (out != nullptr) *out = value;
  return code;
}
Errc f64(std::string_view text, double* out = nullptr) {
  double value = 0;
  const Errc code = number(&Reader::read_double, text, value);
  if (out != nullptr) *out = value;
  return code;
}

// The decoded string, or an empty one and `code`.
std::string str(std::string_view text, Errc* code = nullptr) {
  Reader r(text);
  std::string scratch;
  std::string_view out;
  if (r.read_string(out, scratch)) r.finish();
  const Errc got = outcome(r, text).code;
  if (code != nullptr) {
    *code = got;
  } else {
    CHECK_MESSAGE(got == Errc::none, text);
  }
  return got == Errc::none ? std::string(out) : std::string();
}

}  // namespace

TEST_SUITE_BEGIN("json");

TEST_CASE("json: integers are exact") {
  std::uint64_t u = 0;
  std::int64_t i = 0;
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{10}, std::uint64_t{1234567},
                                std::uint64_t{12345678}, std::uint64_t{123456789}, std::uint64_t{1234567890123456},
                                std::uint64_t{999999999999999999}, std::uint64_t{10000000000000000000u}, UINT64_MAX}) {
    CHECK(u64(std::to_string(n), &u) == Errc::none);
    CHECK(u == n);
  }
  std::mt19937_64 random(7);
  for (int k = 0; k < 2000; ++k) {
    const std::uint64_t n = random() >> random() % 64;
    CHECK(u64(std::to_string(n), &u) == Errc::none);
    CHECK(u == n);
    const auto m = static_cast<std::int64_t>(random()) >> random() % 64;
    CHECK(i64(std::to_string(m), &i) == Errc::none);
    CHECK(i == m);
  }
  CHECK(i64("9223372036854775807", &i) == Errc::none);
  CHECK(i == INT64_MAX);
  CHECK(i64("-9223372036854775808", &i) == Errc::none);
  CHECK(i == INT64_MIN);
  CHECK(i64("9223372036854775808") == Errc::out_of_range);
  CHECK(i64("-9223372036854775809") == Errc::out_of_range);
  CHECK(u64("18446744073709551616") == Errc::out_of_range);
  CHECK(u64("18446744073709551620") == Errc::out_of_range);
  CHECK(u64("99999999999999999999") == Errc::out_of_range);
  CHECK(u64(repeat("9", 1000)) == Errc::out_of_range);
  CHECK(u64("-1") == Errc::out_of_range);
  for (const std::string_view text : {"4.0", "1e2", "1E2", "0e0", "0.0", "-0", "-0.0", "01", "00", "+1", "1.", "\"1\"",
                                      "true", "0x1", "--1", "123456789.5", "12345678e1", "000000000000000000001"}) {
    CHECK_MESSAGE(u64(text) != Errc::none, text);
    CHECK_MESSAGE(i64(text) != Errc::none, text);
    if (text != "1.") CHECK_MESSAGE(u64(text) == Errc::malformed, text);
  }
}

TEST_CASE("json: doubles") {
  double d = 0;
  CHECK(f64("-0", &d) == Errc::none);
  CHECK(std::signbit(d));
  CHECK(f64("1e2", &d) == Errc::none);
  CHECK(d == 100);
  CHECK(f64("18446744073709551616", &d) == Errc::none);
  CHECK(d == 18446744073709551616.0);
  CHECK(f64("0.1", &d) == Errc::none);
  CHECK(d == 0.1);
  CHECK(f64("4.9e-324", &d) == Errc::none);
  CHECK(d == std::numeric_limits<double>::denorm_min());
  CHECK(f64("1.7976931348623157e308", &d) == Errc::none);
  CHECK(d == std::numeric_limits<double>::max());
  CHECK(f64("0e999", &d) == Errc::none);
  CHECK(d == 0);
  CHECK(f64("0." + repeat("0", 5000) + "1e5001", &d) == Errc::none);
  CHECK(d == 1);
  CHECK(f64("1e309") == Errc::out_of_range);
  CHECK(f64("-1e999999999999999999999") == Errc::out_of_range);
  CHECK(f64("-1e-400", &d) == Errc::none);
  CHECK(d == 0);
  CHECK(std::signbit(d));
  for (const std::string_view text : {"NaN", "nan", "inf", "Infinity", "-Infinity", "+1", ".5", "1e", "1e+", "0x1p3",
                                      "01.5", "-", "- 1", "1.e1", "\"1\""}) {
    CHECK_MESSAGE(f64(text) != Errc::none, text);
  }
}

TEST_CASE("json: strings without escapes are views, others are decoded") {
  const std::string text = R"(["plain","a\u00e9b"])";
  Reader r(text);
  std::string scratch = "untouched";
  std::string_view s;
  CHECK((r.begin_array() && r.next_element() && r.read_string(s, scratch)));
  CHECK(s.data() == text.data() + 2);
  CHECK(scratch == "untouched");
  CHECK((r.next_element() && r.read_string(s, scratch)));
  CHECK(s == "aéb");
  CHECK(s.data() == scratch.data());
  CHECK(!r.next_element());
  CHECK(r.finish());
}

TEST_CASE("json: escapes") {
  CHECK(str(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(str(R"("\u0041\u00e9\u6f22\uffff\uD83D\uDE00\udbff\udfff")") == "Aé漢\xef\xbf\xbf😀\xf4\x8f\xbf\xbf");
  CHECK(str(R"("x\u0000y")") == "x\0y"s);
  CHECK(str(R"("\u0000")") == "\0"s);
  CHECK(str(R"("\u007f\u0080\u07ff\u0800\ud7ff\ue000")") == "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80");
  for (const std::string_view bad : {R"("\ud800")",       R"("\udbff")",       R"("\udc00")",
                                     R"("\udfff")",       R"("\ud800\ud800")", R"("\ud800x")",
                                     R"("\ud800\n")",     R"("\ud800\u0041")", R"("\ud800 \udc00")",
                                     R"("\ud800\udbff")", R"("\ud800\ue000")", R"("\udc00\ud800")",
                                     R"("\u")",           R"("\u1")",          R"("\u12")",
                                     R"("\u123")",        R"("\u123g")",       R"("\")",
                                     R"("\0")",           R"("\v")",           R"("\ ")"}) {
    Errc code = Errc::none;
    str(bad, &code);
    CHECK_MESSAGE(code == (bad == R"("\")" ? Errc::truncated : Errc::malformed), bad);
    CHECK_MESSAGE(skip(bad).code == code, bad);
  }
}

TEST_CASE("json: UTF-8 is checked in full, at every distance from the start and end") {
  const std::vector<std::string> good = {"\x7f",         "\xc2\x80",         "\xdf\xbf",
                                         "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
                                         "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
  const std::vector<std::string> bad = {"\x80",
                                        "\xbf",
                                        "\xc0\x80",
                                        "\xc1\xbf",
                                        "\xc2",
                                        "\xc2\x41",
                                        "\xc2\xc2\x80",
                                        "\xe0\x80\x80",
                                        "\xe0\x9f\xbf",
                                        "\xed\xa0\x80",
                                        "\xed\xbf\xbf",
                                        "\xe6\xbc",
                                        "\xe6\x41\xbc",
                                        "\xef\xbf\x7f",
                                        "\xf0\x80\x80\x80",
                                        "\xf0\x8f\xbf\xbf",
                                        "\xf4\x90\x80\x80",
                                        "\xf5\x80\x80\x80",
                                        "\xf0\x90\x80",
                                        "\xf0\x90\x80\x41",
                                        "\xf8\x88\x80\x80\x80",
                                        "\xfe",
                                        "\xff"};
  int wrong = 0;
  for (std::size_t before = 0; before < 20; ++before) {
    for (std::size_t after = 0; after < 10; ++after) {
      for (const auto* list : {&good, &bad}) {
        for (const std::string& piece : *list) {
          const std::string content = std::string(before, 'a') + piece + std::string(after, 'z');
          const std::string text = '"' + content + '"';
          Reader r(text);
          std::string scratch;
          std::string_view back;
          const bool read = r.read_string(back, scratch) && r.finish();
          wrong += read != (list == &good) || valid_utf8(content) != (list == &good);
          wrong += read ? back != content : r.error().offset() != before + 1;
        }
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(valid_utf8(""));
  CHECK(valid_utf8("\0"sv));
}

TEST_CASE("json: specials are found at every place of the scan") {
  int wrong = 0;
  for (std::size_t n = 0; n < 40; ++n) {
    for (int c = 0; c < 0x80; ++c) {
      const std::string content = std::string(n, 'x') + static_cast<char>(c) + "yz";
      std::string text, scratch;
      Writer w(text);
      w.string(content);
      Reader r(text);
      std::string_view back;
      wrong += !(r.read_string(back, scratch) && r.finish() && back == content);
      const std::string raw = '"' + content + '"';
      Reader direct(raw);
      const bool good = direct.skip_value() && direct.finish();
      wrong += good != (c >= 0x20 && c != '"' && c != '\\');
    }
  }
  CHECK(wrong == 0);
}

TEST_SUITE_END();

}  // namespace json_scalars_test
