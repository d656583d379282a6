// The private JSON reader and writer: every rule of the grammar, hostile input, Values there and back.
#include "json/json.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace stele;
using namespace stele::detail::json;
using namespace std::string_literals;
using namespace std::string_view_literals;

namespace {

constexpr std::size_t kAmple = std::size_t{1} << 40;

struct Outcome {
  Errc code = Errc::none;
  std::uint64_t offset = 0;
  std::string expected, found;
};

Outcome outcome(const Reader& r, std::string_view text) {
  if (r.ok()) return {};
  const Error e = r.error();
  REQUIRE(e.offset().has_value());
  CHECK_MESSAGE(*e.offset() <= text.size(), text);
  CHECK(!e.found().empty());
  CHECK((!e.expected().empty() || !e.message().empty()));
  return {e.code(), *e.offset(), std::string(e.expected()), std::string(e.found())};
}

Outcome skip(std::string_view text, Options options = {}) {
  Reader r(text, options);
  const bool good = r.skip_value() && r.finish();
  CHECK(good == r.ok());
  return outcome(r, text);
}

Outcome parse(std::string_view text, Value* out = nullptr, std::size_t memory = kAmple) {
  Reader r(text);
  Value v;
  const Status s = read_value(r, v, memory);
  CHECK(s.has_value() == r.ok());
  if (s && r.finish() && out != nullptr) *out = std::move(v);
  return outcome(r, text);
}

// Reading and skipping must agree; returns their error code.
Errc both(std::string_view text) {
  const Outcome a = skip(text), b = parse(text);
  CHECK_MESSAGE(a.code == b.code, text);
  CHECK_MESSAGE(a.offset == b.offset, text);
  return a.code;
}

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

std::string write(const Value& v) {
  std::string out;
  Writer w(out);
  CHECK(write_value(w, v).has_value());
  CHECK(w.depth() == 0);
  return out;
}

std::string repeat(std::string_view s, std::size_t n) {
  std::string out;
  out.reserve(s.size() * n);
  for (std::size_t i = 0; i < n; ++i) out += s;
  return out;
}

Value::Bytes bytes(std::string_view s) {
  const auto* p = reinterpret_cast<const std::byte*>(s.data());
  return Value::Bytes(p, p + s.size());
}

// As ==, but NaNs are equal when their bits are, and -0 is not 0.
bool same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.as_f64() != nullptr) {
    return std::bit_cast<std::uint64_t>(*a.as_f64()) == std::bit_cast<std::uint64_t>(*b.as_f64());
  }
  if (a.as_list() != nullptr) {
    const auto &x = *a.as_list(), &y = *b.as_list();
    bool equal = x.size() == y.size();
    for (std::size_t i = 0; equal && i < x.size(); ++i) equal = same(x[i], y[i]);
    return equal;
  }
  if (a.as_map() != nullptr) {
    const auto &x = *a.as_map(), &y = *b.as_map();
    bool equal = x.size() == y.size();
    for (std::size_t i = 0; equal && i < x.size(); ++i) {
      equal = x[i].first == y[i].first && same(x[i].second, y[i].second);
    }
    return equal;
  }
  return a == b;
}

void check_round_trip(const Value& v) {
  const std::string text = write(v);
  CHECK_MESSAGE(skip(text).code == Errc::none, text);
  Value back;
  CHECK_MESSAGE(parse(text, &back).code == Errc::none, text);
  CHECK_MESSAGE(same(v, back), text);
  CHECK(write(back) == text);
}

Value random_value(std::mt19937_64& random, unsigned depth) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto text = [&] {
    static const std::vector<std::string> pieces = {"a", "weight", "$",        "$$",           "$str:", "\"",    "\\",
                                                    "/", "\n",     "\x01",     "\0"s,          "\x7f",  "é",     "漢",
                                                    "😀", "\xff",   "\xc0\x80", "\xed\xa0\x80", " ",     "\u2028"};
    std::string out;
    for (std::uint64_t n = below(12); n != 0; --n) out += pieces[below(pieces.size())];
    return out;
  };
  switch (below(depth == 0 ? 9 : 12)) {
    case 0:
      return Value();
    case 1:
      return Value(below(2) == 0);
    case 2:
      return Value(static_cast<std::int64_t>(random()));
    case 3:
      return Value(static_cast<std::int64_t>(below(2000)) - 1000);
    case 4:
      return Value(random());
    case 5:
      return Value(std::bit_cast<double>(random()));
    case 6:
      return Value(static_cast<double>(below(1000)) / 8);
    case 7:
      return Value(text());
    case 8:
      return Value(bytes(text()));
    case 9:
    case 10: {
      Value::List list;
      for (std::uint64_t n = below(6); n != 0; --n) list.push_back(random_value(random, depth - 1));
      return Value(std::move(list));
    }
    default: {
      Value::Map map;
      for (std::uint64_t n = below(below(8) == 0 ? 40 : 5); n != 0; --n) {
        map.emplace_back(text() + std::to_string(n), random_value(random, depth - 1));
      }
      return Value(std::move(map));
    }
  }
}

}  // namespace

TEST_SUITE_BEGIN("json");

TEST_CASE("json: documents that are valid") {
  for (const std::string_view text : {"null",
                                      "true",
                                      "false",
                                      "0",
                                      "-0",
                                      "1",
                                      "-1",
                                      "0.5",
                                      "-0.5e-3",
                                      "1E+5",
                                      "1e5",
                                      "\"\"",
                                      "{}",
                                      "[]",
                                      "[[]]",
                                      "[{}]",
                                      " \t\r\n{ \"a\" : [ 1 , 2 ] , \"b\" : { } } \n",
                                      R"({"a":{"b":{"c":[null,true,false,"x",-1.5]}}})",
                                      "18446744073709551615",
                                      "-9223372036854775808",
                                      R"(["\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00"])",
                                      "[\"\x7f\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\"]"}) {
    CHECK_MESSAGE(both(text) == Errc::none, text);
  }
}

TEST_CASE("json: documents that are not valid") {
  for (const std::string_view text : {"nul1",
                                      "True",
                                      "NULL",
                                      "nan",
                                      "NaN",
                                      "[NaN]",
                                      "Infinity",
                                      "-Infinity",
                                      "inf",
                                      "+1",
                                      ".5",
                                      "[1.]",
                                      "[1.e5]",
                                      "[1e]",
                                      "[1e+]",
                                      "01",
                                      "-01",
                                      "00",
                                      "0x10",
                                      "1_000",
                                      "[-]",
                                      "[--1]",
                                      "[- 1]",
                                      "{]",
                                      "[}",
                                      "[1,]",
                                      "[,1]",
                                      "[,]",
                                      "[1 2]",
                                      "{\"a\":1,}",
                                      "{,}",
                                      "{\"a\" 1}",
                                      "{\"a\",1}",
                                      "{a:1}",
                                      "{1:1}",
                                      "{null:1}",
                                      "{'a':1}",
                                      "['a']",
                                      "{\"a\":}",
                                      "{\"a\":1 \"b\":2}",
                                      "{\"a\"::1}",
                                      "[1}",
                                      "{\"a\":1]",
                                      "[]]",
                                      "{}}",
                                      "1 2",
                                      "{} {}",
                                      "null,",
                                      "[] x",
                                      "/**/1",
                                      "1//",
                                      "[1/**/]",
                                      "\v1",
                                      "\f1",
                                      "\xa0"
                                      "1",
                                      "[\"\t\"]",
                                      "[\"\n\"]",
                                      "[\"\x1f\"]",
                                      "[\"a\\x41\"]",
                                      "[\"\\'\"]",
                                      "[\"\\U0041\"]",
                                      "[\"\\a\"]",
                                      "[\"\\u00g0\"]",
                                      "[\"\\u 041\"]",
                                      "[\"\\u+041\"]",
                                      "[\"\\u-041\"]",
                                      "[\"\\u0x41\"]",
                                      "]",
                                      "}",
                                      ",",
                                      ":",
                                      "\xef\xbb\xbf{}",
                                      "\xff\xfe",
                                      "#",
                                      "undefined",
                                      "[tru]",
                                      "[nulll]"}) {
    CHECK_MESSAGE(both(text) == Errc::malformed, text);
  }
  // Raw NULs are no whitespace and no part of a string.
  CHECK(both("\0"sv) == Errc::malformed);
  CHECK(both("1\0"sv) == Errc::malformed);
  CHECK(both("[\0]"sv) == Errc::malformed);
  CHECK(both("\"a\0b\""sv) == Errc::malformed);
}

TEST_CASE("json: text that ends early is truncated") {
  for (const std::string_view text : {"",         " ",         "[",        "{",      "[1",
                                      "[1,",      "[1 ",       "{\"a",     "{\"a\"", "{\"a\":",
                                      "{\"a\":1", "{\"a\":1,", "\"",       "\"abc",  "\"0123456789abcdef",
                                      "tru",      "n",         "-",        "[1.",    "[1e",
                                      "[1e-",     "[[]",       "{\"a\":{}"}) {
    CHECK_MESSAGE(both(text) == Errc::truncated, text);
    CHECK(skip(text).offset == text.size());
    CHECK(skip(text).found == "the end of the text");
  }
}

TEST_CASE("json: every truncation of a valid document is an error within the text") {
  const std::string text =
      R"( {"layers.0.weight" : {"dtype":"F32","shape":[16,18446744073709551615],"data_offsets":[0,1024]},)"
      R"("esc\u00e9\ud83d\ude00\n":[null,true,false,-1.5e+10,0.25,-7,"漢字é😀",{"$bytes":"AAEC"}],"x":{"$f64":"nan"}})";
  Value whole;
  REQUIRE(parse(text, &whole).code == Errc::none);
  for (std::size_t n = 0; n < text.size(); ++n) {
    // A copy of its own, so that a sanitizer sees any look beyond the end.
    const std::vector<char> cut(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));
    CHECK_MESSAGE(both(std::string_view(cut.data(), n)) != Errc::none, n);
  }
  for (std::size_t n = 0; n < text.size(); ++n) {
    for (const int flip : {0x01, 0x20, 0x80, 0xff}) {
      std::string other = text;
      other[n] = static_cast<char>(other[n] ^ flip);
      parse(other);  // any outcome but a crash or an offset outside
      skip(other);
    }
  }
}

TEST_CASE("json: errors say where, what was expected and what was found") {
  Outcome o = skip(R"({"a":1;"b":2})");
  CHECK(o.offset == 6);
  CHECK(o.expected == ", or }");
  CHECK(o.found == R"(;"b")");
  o = skip("[1,\x01]");
  CHECK(o.offset == 3);
  CHECK(o.found == "\\x01");
  o = skip("[1,]");
  CHECK(o.offset == 3);
  CHECK(o.expected == "a value");
  o = skip("\xef\xbb\xbf{}");
  CHECK(o.offset == 0);
  CHECK(o.found == "\\xef\\xbb\\xbf{");
  o = skip("{} x");
  CHECK(o.offset == 3);
  CHECK(o.expected == "the end of the text");
  Reader r("[4.0]", {.base = 8});
  std::uint64_t n = 0;
  CHECK(r.begin_array());
  CHECK(r.next_element());
  CHECK(!r.read_u64(n));
  CHECK(r.error().to_string() == "malformed: expected an unsigned integer below 2^64, found 4.0 at byte 9");
}

TEST_CASE("json: the first error stays, and calls chain") {
  Reader r(R"({"shape":[16,x]})");
  std::string scratch;
  std::string_view key;
  std::uint64_t a = 0, b = 0;
  CHECK(!(r.begin_object() && r.next_key(key, scratch) && r.begin_array() && r.next_element() && r.read_u64(a) &&
          r.next_element() && r.read_u64(b) && !r.next_element() && !r.next_key(key, scratch) && r.finish()));
  CHECK(a == 16);
  CHECK(r.error().offset() == 13);
  CHECK(!r.next_element());
  CHECK(!r.next_key(key, scratch));
  CHECK(!r.skip_value());
  CHECK(!r.begin_object());
  CHECK(!r.finish());
  CHECK(!r.fail(Errc::duplicate, "another"));
  CHECK(r.peek() == Kind::none);
  CHECK(r.error().code() == Errc::malformed);
  CHECK(r.error().offset() == 13);
  CHECK(!r.status());

  Reader own(R"({"a":1,"b":2})");
  CHECK(own.begin_object());
  CHECK(own.next_key(key, scratch));
  CHECK(own.skip_value());
  CHECK(own.next_key(key, scratch));
  CHECK(own.offset() == 7);
  CHECK(!own.fail(Errc::duplicate, "distinct names", "a name twice"));
  CHECK(own.error().to_string() == R"(duplicate: a name twice: expected distinct names, found "b" at byte 7)");
}

TEST_CASE("json: calls out of order are refused, not undefined") {
  std::string scratch;
  std::string_view s;
  std::uint64_t n = 0;
  const auto refused = [](const Reader& r) { return !r.ok() && r.error().code() == Errc::invalid_argument; };
  Reader a("[1,2]");
  CHECK(!a.next_element());
  CHECK(refused(a));
  Reader b("[1,2]");
  b.begin_array();
  CHECK(!b.read_u64(n));
  CHECK(refused(b));
  Reader c("[1,2]");
  CHECK(c.begin_array());
  CHECK(!c.next_key(s, scratch));
  CHECK(refused(c));
  Reader d("{\"a\":1}");
  CHECK(d.begin_object());
  CHECK(d.next_key(s, scratch));
  CHECK(!d.next_key(s, scratch));
  CHECK(refused(d));
  Reader e("1 2");
  CHECK(e.read_u64(n));
  CHECK(!e.read_u64(n));
  CHECK(refused(e));
  Reader f("1");
  CHECK(!f.finish());
  CHECK(refused(f));
}

TEST_CASE("json: peek, skip_value's text and copies of the reader") {
  const std::string text = R"( {"o":{"x":[1,{}]}, "a" : [ ] ,"s":"\n","n":-1,"t":true,"f":false,"z":null})";
  Reader r(text);
  std::string scratch;
  std::string_view key, raw;
  CHECK(r.peek() == Kind::object);
  CHECK(r.begin_object());
  const std::vector<std::pair<Kind, std::string_view>> wanted = {
      {Kind::object, R"({"x":[1,{}]})"}, {Kind::array, "[ ]"},     {Kind::string, R"("\n")"}, {Kind::number, "-1"},
      {Kind::boolean, "true"},           {Kind::boolean, "false"}, {Kind::null, "null"}};
  std::size_t i = 0;
  while (r.next_key(key, scratch)) {
    CHECK(r.peek() == wanted.at(i).first);
    const Reader saved = r;
    CHECK(r.skip_value(&raw));
    CHECK(raw == wanted.at(i).second);
    r = saved;
    CHECK(r.skip_value());
    ++i;
  }
  CHECK(r.finish());
  CHECK(i == wanted.size());
}

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

TEST_CASE("json: NUL in names is allowed or refused") {
  const std::string_view text = R"({"a\u0000b":"c\u0000d"})";
  CHECK(skip(text).code == Errc::none);
  CHECK(skip(text, {.nul_in_names = false}).code == Errc::malformed);
  CHECK(skip(text, {.nul_in_names = false}).offset == 1);
  CHECK(skip(R"({"a":"c\u0000d"})", {.nul_in_names = false}).code == Errc::none);
  Value v;
  CHECK(parse(text, &v).code == Errc::none);
  CHECK(v == Value(Value::Map{{"a\0b"s, Value("c\0d"s)}}));
}

TEST_CASE("json: depth is bounded") {
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{{"[", "]"}, {"{\"a\":", "}"}}) {
    CHECK(both(repeat(open, 64) + "0" + repeat(close, 64)) == Errc::none);
    CHECK(both(repeat(open, 65) + "0" + repeat(close, 65)) == Errc::limit);
    for (const std::string& bomb : {repeat(open, 5000000), repeat(open, 100000) + "0" + repeat(close, 100000)}) {
      CHECK(both(bomb) == Errc::limit);
      CHECK(skip(bomb).offset == 64 * open.size());
    }
  }
  CHECK(both(repeat("[{\"a\":", 32) + "1" + repeat("}]", 32)) == Errc::none);
  CHECK(both(repeat("[{\"a\":", 32) + "[]" + repeat("}]", 32)) == Errc::limit);
  CHECK(both(repeat("]", 5000000)) == Errc::malformed);
  // The bits of the levels survive deep visits.
  CHECK(both("[" + repeat("{\"a\":[", 31) + repeat("]}", 31) + ",{\"b\":[1,{}]},2]") == Errc::none);
  CHECK(both("[" + repeat("{\"a\":[", 31) + repeat("]}", 31) + "}") == Errc::malformed);
}

TEST_CASE("json: the writer's bytes") {
  std::string out;
  Writer w(out);
  w.begin_object();
  w.key("w");
  w.begin_object();
  w.key("dtype");
  w.string("F32");
  w.key("shape");
  w.begin_array();
  w.u64(2);
  w.u64(UINT64_MAX);
  w.i64(INT64_MIN);
  w.end_array();
  w.key("empty");
  w.begin_array();
  w.end_array();
  CHECK(w.depth() == 2);
  w.end_object();
  w.key("x\"\n");
  w.begin_array();
  w.null();
  w.boolean(true);
  w.boolean(false);
  w.base64(bytes("ab"));
  w.begin_object();
  w.end_object();
  w.f64(0.5);
  w.end_array();
  w.end_object();
  CHECK(out == R"({"w":{"dtype":"F32","shape":[2,18446744073709551615,-9223372036854775808],"empty":[]},)"
               R"("x\"\n":[null,true,false,"YWI=",{},0.5]})");

  const auto text = [](std::string_view s) {
    std::string json;
    Writer(json).string(s);
    return json;
  };
  CHECK(text("") == R"("")");
  CHECK(text("\b\f\n\r\t\"\\/") == R"("\b\f\n\r\t\"\\/")");
  CHECK(text("\0\x01\x0b\x0e\x1f\x7f"sv) == "\"\\u0000\\u0001\\u000b\\u000e\\u001f\x7f\"");
  CHECK(text("é漢😀\u2028") == "\"é漢😀\u2028\"");
}

TEST_CASE("json: Values as literal text") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(write(Value()) == "null");
  CHECK(write(Value(true)) == "true");
  CHECK(write(Value(std::int64_t{-7})) == "-7");
  CHECK(write(Value(UINT64_MAX)) == "18446744073709551615");
  CHECK(write(Value(1.0)) == "1.0");
  CHECK(write(Value(-0.0)) == "-0.0");
  CHECK(write(Value(0.1)) == "0.1");
  CHECK(write(Value(1e20)) == "1e+20");
  CHECK(write(Value(100000.0)) == "1e+05");
  CHECK(write(Value(123456.0)) == "123456.0");
  CHECK(write(Value(5e-324)) == "5e-324");
  CHECK(write(Value(-2.2250738585072014e-308)) == "-2.2250738585072014e-308");
  CHECK(write(Value(std::numeric_limits<double>::quiet_NaN())) == R"({"$f64":"nan"})");
  CHECK(write(Value(inf)) == R"({"$f64":"inf"})");
  CHECK(write(Value(-inf)) == R"({"$f64":"-inf"})");
  CHECK(write(Value(std::bit_cast<double>(0xfff8000000000000u))) == R"({"$f64":"0xfff8000000000000"})");
  CHECK(write(Value(std::bit_cast<double>(0x7ff0000000abcdefu))) == R"({"$f64":"0x7ff0000000abcdef"})");
  CHECK(write(Value(bytes("\0\x01\x02"sv))) == R"({"$bytes":"AAEC"})");
  CHECK(write(Value(Value::Bytes{})) == R"({"$bytes":""})");
  CHECK(write(Value("\xff")) == R"({"$str":"/w=="})");
  CHECK(write(Value(Value::Map{{"$bytes", Value("AAEC")}})) == R"({"$$bytes":"AAEC"})");
  CHECK(write(Value(Value::Map{{"a", Value(1.5)}, {"$$", Value()}, {"\xff", Value()}, {"b$", Value()}})) ==
        R"({"a":1.5,"$$$":null,"$str:/w==":null,"b$":null})");
}

TEST_CASE("json: Values there and back") {
  for (const double d :
       {0.0, -0.0, 1.0, -1.0, 1e15, 1e16, 1e17, 1e22, 1e300, 0.1, 123456789.0, 5e-324, 1.7976931348623157e308}) {
    check_round_trip(Value(d));
  }
  for (const std::uint64_t bits : {0x7ff8000000000000u, 0xfff8000000000000u, 0x7ff0000000000001u, 0xffffffffffffffffu,
                                   0x7ff0000000000000u, 0xfff0000000000000u}) {
    check_round_trip(Value(std::bit_cast<double>(bits)));
  }
  for (const char* key : {"$", "$$", "$$$", "$bytes", "$str", "$f64", "$str:", "$str:/w==", "$other", "", "a$"}) {
    check_round_trip(Value(Value::Map{{key, Value("AAEC")}}));
    check_round_trip(Value(Value::Map{{"a", Value()}, {key, Value("AAEC")}}));
  }
  check_round_trip(Value(Value::Map{{"$a", Value()}, {"$$a", Value()}, {"$$$a", Value()}}));
  check_round_trip(Value(Value::Map{{"\xff", Value()}, {"$str:/w==", Value()}}));
  std::mt19937_64 random(20);
  for (int i = 0; i < 3000; ++i) check_round_trip(random_value(random, 4));
}

TEST_CASE("json: numbers keep their kind") {
  Value v;
  CHECK(parse("-0", &v).code == Errc::none);
  CHECK(same(v, Value(-0.0)));
  CHECK(parse("9223372036854775808", &v).code == Errc::none);
  CHECK(v.kind() == Value::Kind::u64);
  CHECK(parse("9223372036854775807", &v).code == Errc::none);
  CHECK(v.kind() == Value::Kind::i64);
  CHECK(parse("1e2", &v).code == Errc::none);
  CHECK(v == Value(100.0));
  CHECK(parse("18446744073709551616").code == Errc::out_of_range);
  CHECK(parse("-9223372036854775809").code == Errc::out_of_range);
  CHECK(parse("1e999").code == Errc::out_of_range);
}

TEST_CASE("json: $ objects are strict") {
  for (const std::string_view text : {R"({"$bytes":"AAE"})",
                                      R"({"$bytes":"AAE!"})",
                                      R"({"$bytes":"AB=="})",
                                      R"({"$bytes":1})",
                                      R"({"$bytes":null})",
                                      R"({"$bytes":"AAEC","x":1})",
                                      R"({"x":1,"$bytes":"AAEC"})",
                                      R"({"$str":"A"})",
                                      R"({"$str":{}})",
                                      R"({"$f64":"NaN"})",
                                      R"({"$f64":"0x7ff0000000000000"})",
                                      R"({"$f64":"0x3ff0000000000000"})",
                                      R"({"$f64":"0x7ff800000000000"})",
                                      R"({"$f64":"0x7ff80000000000000"})",
                                      R"({"$f64":"7ff8000000000000"})",
                                      R"({"$f64":"0x-ff8000000000000"})",
                                      R"({"$f64":1.0})",
                                      R"({"$f64":"nan","$f64":"nan"})",
                                      R"({"$str:A":1})",
                                      R"({"a":1,"$str":"AA=="})"}) {
    CHECK_MESSAGE(parse(text).code == Errc::malformed, text);
    CHECK_MESSAGE(skip(text).code == Errc::none, text);  // it is JSON
  }
  CHECK(parse(R"({"$schema":"x"})").code == Errc::unsupported);
  CHECK(parse(R"({"$":1})").code == Errc::unsupported);
  Value v;
  CHECK(parse(R"({"\u0024bytes":"\u0041AEC"})", &v).code == Errc::none);
  CHECK(v == Value(bytes("\0\x01\x02"sv)));
}

TEST_CASE("json: duplicate keys are refused on reading and writing") {
  const Outcome o = parse(R"({"a":1,"b":{"c":1},"\u0061":2})");
  CHECK(o.code == Errc::duplicate);
  CHECK(o.offset == 19);
  CHECK(parse(R"({"x":{"":1,"":1}})").code == Errc::duplicate);
  CHECK(parse(R"({"$$a":1,"$str:JGE=":1})").code == Errc::duplicate);
  CHECK(parse(R"({"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]})").code == Errc::none);

  // Many keys, long common prefixes: fast enough only when it is not quadratic.
  const std::string prefix(40, 'p');
  std::string text;
  Writer w(text);
  w.begin_object();
  for (std::uint64_t i = 0; i < 100000; ++i) {
    w.key(prefix + std::to_string(i));
    w.u64(i);
  }
  const std::string good = text + "}";
  CHECK(parse(good).code == Errc::none);
  const std::size_t at = text.size() + 1;
  w.key(prefix + "77777");
  w.null();
  w.key(prefix + "1");
  w.null();
  w.end_object();
  const Outcome big = parse(text);
  CHECK(big.code == Errc::duplicate);
  CHECK(big.offset == at);

  std::string out;
  Writer writer(out);
  Value::Map map;
  for (int i = 0; i < 30; ++i) map.emplace_back(std::to_string(i), Value());
  CHECK(write_value(writer, Value(map)).has_value());
  map.emplace_back("17", Value());
  const Status s = write_value(writer, Value(map));
  REQUIRE(!s);
  CHECK(s.error().code() == Errc::duplicate);
  CHECK(s.error().found() == "17");
}

TEST_CASE("json: writing stops at the depth that can be read") {
  const auto nested = [](Value v, int levels, bool maps) {
    for (int i = 0; i < levels; ++i) {
      Value::Map map;
      Value::List list;
      if (maps && i % 2 == 0) {
        map.emplace_back("k", std::move(v));
        v = Value(std::move(map));
      } else {
        list.push_back(std::move(v));
        v = Value(std::move(list));
      }
    }
    return v;
  };
  for (const bool maps : {false, true}) {
    check_round_trip(nested(Value(1.5), 64, maps));
    check_round_trip(nested(Value(bytes("x")), 63, maps));
    for (const Value& v :
         {nested(Value(1.5), 65, maps), nested(Value(1.5), 1000, maps), nested(Value(bytes("x")), 64, maps),
          nested(Value("\xff"), 64, maps), nested(Value(std::nan("")), 64, maps)}) {
      std::string out;
      Writer w(out);
      const Status s = write_value(w, v);
      REQUIRE(!s);
      CHECK(s.error().code() == Errc::limit);
    }
  }
  std::string out;
  Writer w(out);
  w.begin_array();
  CHECK(!write_value(w, nested(Value(1.5), 64, false)));
}

TEST_CASE("json: the memory of a Value is bounded") {
  std::string numbers = "[0", lists = "[[0]", maps = "[{\"a\":0}", keys = "{\"0\":0";
  for (int i = 1; i < 70000; ++i) {
    numbers += ",0";
    lists += ",[0]";
    maps += ",{\"a\":0}";
    keys += ",\"" + std::to_string(i) + "\":0";
  }
  const std::string text = "\"" + std::string(100000, 'x') + "\"",
                    blob = "{\"$bytes\":\"" + std::string(100000, 'A') + "\"}";
  for (const std::string& doc : {numbers + "]", lists + "]", maps + "]", keys + "}", text, blob}) {
    CHECK(parse(doc, nullptr, kMaxValueBytesPerByte * doc.size()).code == Errc::none);
    const Outcome o = parse(doc, nullptr, doc.size() / 2);
    CHECK(o.code == Errc::limit);
  }
  CHECK(parse("0", nullptr, 0).code == Errc::none);
  CHECK(parse("[]", nullptr, 0).code == Errc::none);
  CHECK(parse("[0]", nullptr, 8).code == Errc::limit);
  Value untouched(std::int64_t{5});
  Reader r("[1,2,x]");
  CHECK(!read_value(r, untouched, kAmple));
  CHECK(untouched == Value(std::int64_t{5}));
}

TEST_CASE("json: base64") {
  const auto encode = [](std::string_view s) {
    std::string out(base64_size(s.size()), '?');
    base64_encode(std::as_bytes(std::span(s)), out.data());
    return out;
  };
  const auto decode = [](std::string_view s, std::string& out) {
    out.assign(base64_decoded_size(s), '?');
    return base64_decode(s, std::as_writable_bytes(std::span(out)).data());
  };
  // RFC 4648, section 10.
  for (const auto& [plain, coded] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                     {"f", "Zg=="},
                                                                                     {"fo", "Zm8="},
                                                                                     {"foo", "Zm9v"},
                                                                                     {"foob", "Zm9vYg=="},
                                                                                     {"fooba", "Zm9vYmE="},
                                                                                     {"foobar", "Zm9vYmFy"},
                                                                                     {"\xfb\xff\xfe", "+//+"}}) {
    CHECK(encode(plain) == coded);
    std::string back;
    CHECK(decode(coded, back));
    CHECK(back == plain);
  }
  std::string out;
  for (const std::string_view bad : {"Z",
                                     "Zg",
                                     "Zg=",
                                     "Zh==",
                                     "Zm9=",
                                     "Zm8",
                                     "Z===",
                                     "====",
                                     "=",
                                     "==",
                                     "Zg==Zg==",
                                     "Zm8=Zm8=",
                                     "Zm9v ",
                                     " Zm9",
                                     "Zm9\n",
                                     "Zm-_",
                                     "Zm9v=",
                                     "Zm=v",
                                     "Zg=v",
                                     "=m9v",
                                     "Z\x80"
                                     "9v",
                                     "Zm9vZ",
                                     "Zm\xff="}) {
    CHECK_MESSAGE(!decode(bad, out), bad);
  }
  std::mt19937_64 random(3);
  for (std::size_t n = 0; n < 300; ++n) {
    std::string plain(n, '\0');
    for (char& c : plain) c = static_cast<char>(random());
    CHECK(decode(encode(plain), out));
    CHECK(out == plain);
  }
}

TEST_SUITE_END();
