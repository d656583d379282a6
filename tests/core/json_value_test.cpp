// The private JSON writer; Values there and back; base64.
#include "json/json.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "json_outcome.hpp"

namespace json_value_test {

using namespace stele;
using namespace stele::detail::json;
using namespace std::string_literals;
using namespace std::string_view_literals;
using namespace stele_test::json_text;

namespace {

std::string write(const Value& v) {
  std::string out;
  Writer w(out);
  CHECK(write_value(w, v).has_value());
  CHECK(w.depth() == 0);
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

}  // namespace json_value_test
