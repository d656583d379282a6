// The private JSON reader: every rule of the grammar, hostile input.
#include "json/json.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "json_outcome.hpp"

namespace json_reader_test {

using namespace stele;
using namespace stele::detail::json;
using namespace std::string_literals;
using namespace std::string_view_literals;
using namespace stele_test::json_text;

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

TEST_CASE("json: numbers that only Python writes are allowed or refused") {
  const Options python{.non_finite = true};
  for (const std::string_view text : {"NaN", "Infinity", "-Infinity", "[NaN,-Infinity , 1]", "{\"NaN\":NaN}"}) {
    CAPTURE(text);
    CHECK(skip(text).code == Errc::malformed);
    CHECK(skip(text, python).code == Errc::none);
  }
  for (const std::string_view text : {"-NaN", "+Infinity", "nan", "Inf", "Infinit", "NaNNaN", "{NaN:1}", "-", "N"}) {
    CAPTURE(text);
    CHECK(skip(text, python).code != Errc::none);
  }
  Reader in("[-Infinity,NaN,Infinity,-1]", python);
  Value value;
  REQUIRE(read_value(in, value, 1000, true));
  const Value::List& list = *value.as_list();
  CHECK(*list[0].as_f64() == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(*list[1].as_f64()));
  CHECK(*list[2].as_f64() == std::numeric_limits<double>::infinity());
  CHECK(*list[3].as_i64() == -1);
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

TEST_SUITE_END();

}  // namespace json_reader_test
