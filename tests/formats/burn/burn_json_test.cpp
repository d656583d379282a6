// JSON of Burn's records, token by token: to the byte as serde_json writes it, damaged.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "support/burn_json.hpp"
#include "support/temp_dir.hpp"

namespace burn_json_test {

namespace {

using namespace burn_json;
namespace gzip = detail::gzip;

/// All that there is, in one line; or the error.
std::string tokens_text(burn::TokenReader& tokens, bool bytes = true) {
  std::string text;
  for (int depth = 0;;) {
    Token t;
    if (Status s = tokens.next(t); !s) return "error: " + s.error().to_string();
    if (!text.empty()) text += ' ';
    switch (t.kind) {
      case Token::Kind::nil:
        text += "nil";
        break;
      case Token::Kind::text:
        text += "'" + t.text + "'";
        break;
      case Token::Kind::scalar:
        text += to_text(t.scalar);
        break;
      case Token::Kind::bytes:
        text += "bytes:" + (bytes ? streamed(leaf_of(tokens, t)) : std::to_string(t.size));
        break;
      case Token::Kind::list:
      case Token::Kind::map:
        text += t.kind == Token::Kind::map ? '{' : '[';
        ++depth;
        break;
      case Token::Kind::end:
        if (depth-- == 0) return text + ".";
        text += '/';
        break;
      case Token::Kind::extension:
        return "an extension";
    }
  }
}
std::string tokens_text(std::string_view json, bool bytes = true) {
  auto tokens = open_json(json);
  return tokens ? tokens_text(**tokens, bytes) : "error: " + tokens.error().to_string();
}

/// Writes what tokens say.
void copy(burn::TokenReader& tokens, burn::TokenWriter& out) {
  struct Level {
    bool map = false, key = false;
  };
  std::vector<Level> levels{{}};
  for (;;) {
    Token t;
    REQUIRE(tokens.next(t));
    Level& level = levels.back();
    const bool key = level.map && !level.key && t.kind != Token::Kind::end;
    level.key = key;
    if (key) {
      REQUIRE(out.key(t.text));
      continue;
    }
    switch (t.kind) {
      case Token::Kind::nil:
        REQUIRE(out.nil());
        break;
      case Token::Kind::text:
        REQUIRE(out.value(Value(t.text)));
        break;
      case Token::Kind::scalar:
        REQUIRE(out.value(t.scalar));
        break;
      case Token::Kind::bytes:
        REQUIRE(out.bytes(leaf_of(tokens, t).leaf(0)));
        break;
      case Token::Kind::list:
        REQUIRE(out.begin_list(0));
        levels.push_back({});
        break;
      case Token::Kind::map:
        REQUIRE(out.begin_map(0));
        levels.push_back({true});
        break;
      case Token::Kind::extension:
      case Token::Kind::end:
        levels.pop_back();
        if (levels.empty()) return;
        REQUIRE(out.end());
    }
  }
}
std::string copied(std::string_view json, bool pretty) {
  const auto tokens = open_json(json).value();
  return written(pretty, [&](burn::TokenWriter& out) { copy(*tokens, out); });
}

const std::string pretty_record = R"({
  "metadata": {
    "float": "f32",
    "settings": "a \"b\" \\ / \b\f\n\r\t\u0001\u001f\u001b )"
                                  "\x7f\xc3\xa4"
                                  R"("
  },
  "item": {
    "weight": {
      "id": "72d17eukbtkma",
      "param": {
        "bytes": [
          0,
          9,
          10,
          99,
          100,
          255
        ],
        "shape": [
          6
        ],
        "dtype": {
          "Bool": "U8"
        }
      }
    },
    "none": [],
    "empty": {},
    "bytes": [
      {
        "bytes": []
      },
      []
    ],
    "numbers": [
      -1,
      18446744073709551615,
      1.5,
      true,
      false
    ]
  },
  "_b": null
})";
const std::string compact_record =
    R"({"metadata":{"float":"f32","settings":"a \"b\" \\ / \b\f\n\r\t\u0001\u001f\u001b )"
    "\x7f\xc3\xa4"
    R"("},"item":{"weight":{"id":"72d17eukbtkma","param":{"bytes":[0,9,10,99,100,255],"shape":[6],)"
    R"("dtype":{"Bool":"U8"}}},"none":[],"empty":{},"bytes":[{"bytes":[]},[]],)"
    R"("numbers":[-1,18446744073709551615,1.5,true,false]},"_b":null})";

}  // namespace

TEST_SUITE_BEGIN("burn_json");

TEST_CASE("burn json: written as serde_json writes it, and read again") {
  CHECK(copied(pretty_record, true) == pretty_record);
  CHECK(copied(pretty_record, false) == compact_record);
  CHECK(copied(compact_record, true) == pretty_record);
  CHECK(copied(compact_record, false) == compact_record);
  CHECK(copied("[]", true) == "[]");
  CHECK(copied(" \n7\t", true) == "7");
}

TEST_CASE("burn json: the files of Burn, token by token and back") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test_data("burn"))) {
    const bool packed = entry.path().string().ends_with(".json.gz");
    if (!packed && entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    SourcePtr source = open_file(entry.path().string()).value();
    if (packed) {
      gzip::Gzip gzip(source);
      std::byte some[1000];
      while (gzip.next(some).value() == sizeof some) continue;
      source = gzip.source();
    }
    std::string text(static_cast<std::size_t>(source->size()), '\0');
    REQUIRE(source->read_at(0, std::as_writable_bytes(std::span(text))));
    const auto tokens = burn::json_reader(source, enough).value();
    const auto again = tokens->clone();
    const std::string all = tokens_text(*tokens);
    CHECK(all.substr(0, 6) != "error:");
    CHECK(tokens_text(*again) == all);
    CHECK(copied(text, !packed) == text);
    ++files;
  }
  CHECK(files != 0);
}

TEST_CASE("burn json: tokens") {
  CHECK(tokens_text(R"({"a":null,"b":[1,"x",{}],"bytes":[65,66]})") ==
        "{ 'a' nil 'b' [ i64 1 'x' { / / 'bytes' bytes:AB / .");
  // After another key or spelling, in a list or string, or with other elements, a list is not read as bytes.
  CHECK(tokens_text(R"([[65],"bytes",[66]])") == "[ [ i64 65 / 'bytes' [ i64 66 / / .");
  CHECK(tokens_text(R"({"bytes ":[1],"x":"\"bytes\":[1","byte":[2],"bytess":[]})") ==
        "{ 'bytes ' [ i64 1 / 'x' '\"bytes\":[1' 'byte' [ i64 2 / 'bytess' [ / / .");
  CHECK(tokens_text(R"({"bytes":[{"bytes":[ ]}],"b\u0079tes":[1],"bytes":7,"bytes":[-1]})") ==
        "{ 'bytes' [ { 'bytes' bytes: / / 'bytes' [ i64 1 / 'bytes' i64 7 'bytes' [ i64 -1 / / .");
  CHECK(tokens_text("\r\n{\t\"bytes\" \n:\r [\t\n 65\r,\n66 ,67 , \t68 ]\n,  \"a\":  1e2 } \t") ==
        "{ 'bytes' bytes:ABCD 'a' f64 " + std::to_string(std::bit_cast<std::uint64_t>(100.0)) + " / .");
}

TEST_CASE("burn json: values as serde_json writes them") {
  const auto text = [](const Value& value) {
    return written(false, [&](burn::TokenWriter& out) { REQUIRE(out.value(value)); });
  };
  const std::pair<double, const char*> numbers[] = {{0, "0.0"},
                                                    {-0.0, "-0.0"},
                                                    {1, "1.0"},
                                                    {-1.5, "-1.5"},
                                                    {0.1, "0.1"},
                                                    {123456, "123456.0"},
                                                    {1e15, "1000000000000000.0"},
                                                    {1.5e15, "1500000000000000.0"},
                                                    {1e16, "1e+16"},
                                                    {1.5e16, "1.5e+16"},
                                                    {1e300, "1e+300"},
                                                    {-1.25e-300, "-1.25e-300"},
                                                    {0.00001, "0.00001"},
                                                    {0.000012, "0.000012"},
                                                    {0.000001, "1e-6"},
                                                    {1.25e-6, "1.25e-6"},
                                                    {5e-324, "5e-324"},
                                                    {123456789012345.6, "123456789012345.6"},
                                                    {-1234567890123456.0, "-1234567890123456.0"},
                                                    {2.2250738585072014e-308, "2.2250738585072014e-308"}};
  for (const auto& n : numbers) CHECK(text(Value(n.first)) == n.second);
  CHECK(written(true, [](burn::TokenWriter& out) { REQUIRE(out.unit()); }) == "null");
  CHECK(text(Value(std::int64_t{INT64_MIN})) == "-9223372036854775808");
  CHECK(text(Value(Value::Map{{"a", Value(Value::List{Value(), Value(true)})}, {"b", Value(Value::Map{})}})) ==
        R"({"a":[null,true],"b":{}})");
  BufferSink sink;
  ReadContext context;
  const auto out = burn::json_writer(sink, context, false);
  for (const Value& bad : {Value("\xff"), Value(Value::Bytes(2)), Value(HUGE_VAL), Value(std::nan("")),
                           Value(Value::Map{{"\xff", Value()}})}) {
    CHECK(out->value(bad).error().code() == Errc::not_representable);
  }
  CHECK(out->key("\xff").error().code() == Errc::not_representable);
}

TEST_CASE("burn json: where tokens and errors are in the file") {
  const std::string text = R"({"bytes":[1,2,3],"a":[{"bytes":[]},{"bytes": [ 4 ]}],"b":7})";
  const auto tokens = open_json(text).value();
  std::vector<std::uint64_t> places;
  ReaderPtr half;
  for (Token t;;) {
    REQUIRE(tokens->next(t));
    if (t.kind == Token::Kind::end) {
      if (t.offset == text.find('7')) break;
      continue;
    }
    places.push_back(t.offset);
    if (places.size() == 5) half = tokens->clone();
  }
  const auto found = [&](std::string_view what) { return std::uint64_t{text.find(what)}; };
  CHECK(places == std::vector<std::uint64_t>{0, 1, found("[1"), found("\"a\""), found("[{"), found("{\"bytes\":[]"),
                                             found("\"bytes\":[]"), found("[]"), found("{\"bytes\": "),
                                             found("\"bytes\": "), found("[ 4"), found("\"b\":"), found("7")});
  CHECK(tokens_text(*half) == "{ 'bytes' bytes: / { 'bytes' bytes:\x04 / .");  // the list's end
}

TEST_CASE("burn json: what is wrong, and where") {
  const auto check = [](std::string text, Errc code, std::string_view at) {
    CAPTURE(text);
    auto tokens = open_json(text);
    Status status = tokens ? Status() : Status(tokens.error());
    Token t;
    for (int i = 0; status && i < 100; ++i) status = (*tokens)->next(t);
    REQUIRE(!status);
    CHECK(status.error().code() == code);
    CHECK(status.error().file() == "test.json");
    CHECK(status.error().offset() == std::min(text.find(at), text.size()));
  };
  const std::string behind = std::string(100, ' ') + "]}";
  const std::pair<const char*, const char*> bad_numbers[] = {
      {"[1,256,2", "6,2"}, {"[256,2", "6,2"},  {"[1,01,2", "1,2"},   {"[00,2", "0,2"},  {"[1,-1,2", "-1,2"},
      {"[1,1.5,2", ".5"},  {"[1,1e1,2", "e1"}, {"[1,,2", ",2"},      {"[1 2", "2"},     {"[1,x,2", "x"},
      {"[1,2,]", "]"},     {"[1,[2]", "[2"},   {"[1,\"2\"", "\"2"},  {"[1,null", "nu"}, {"[1,{}", "{}"},
      {"[1,2}", "}"},      {"[1,+1,2", "+1"},  {"[1,1000,2", "0,2"}, {"[1:2", ":2"},    {"[1,2\n\n,\n\n,3", ",3"}};
  for (const auto& bad : bad_numbers) {
    for (const bool more : {false, true}) {  // the slow way, and the fast one
      std::string text = "{\"bytes\":"s + bad.first + (more ? behind : "]}");
      CAPTURE(text);
      const auto tokens = open_json(text);
      REQUIRE(!tokens);
      CHECK(tokens.error().code() == Errc::malformed);
      CHECK(tokens.error().file() == "test.json");
      CHECK(tokens.error().offset() == text.find(bad.second, 10));
    }
  }
  check(R"({"bytes":[1,2,3],"a":tru })", Errc::malformed, "tru");
  check(R"({"bytes":[1,2,3] "a":1})", Errc::malformed, "\"a\"");
  check(R"({"bytes":[1,2,3],"bytes":[4],"a":"\x"})", Errc::malformed, "\\x");
  check("{\"bytes\":[1,2,3],\"a\":\"\xff\"}", Errc::malformed, "\xff");
  check(R"({"bytes":[1,2,3]} x)", Errc::malformed, "x");
  check(R"(["bytes":[1,2,3]])", Errc::malformed, ":");
  check(R"({"bytes":[1,2,3)", Errc::truncated, "none");
  check(R"({"bytes":[1,2,3])", Errc::truncated, "none");
  check(R"({"a":")" + std::string(burn::max_text + 1, 'x') + "\"}", Errc::limit, "\"x");
  check(R"({")" + std::string(burn::max_text + 1, 'x') + "\":1}", Errc::limit, "\"x");
  check("", Errc::truncated, "none");
  check("1e999", Errc::out_of_range, "1");
}

TEST_CASE("burn json: depth") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth - 1, '[') + R"({"bytes":[1]})" + std::string(depth - 1, ']');
  };
  CHECK(tokens_text(nested(burn::max_depth)).substr(0, 5) == "[ [ [");
  CHECK(tokens_text(nested(burn::max_depth + 1)).substr(0, 12) == "error: limit");
  CHECK(tokens_text(std::string(100000, '[')).substr(0, 12) == "error: limit");
}

TEST_CASE("burn json: documents that are cut off or damaged") {
  for (const std::string& text : {pretty_record, compact_record}) {
    for (std::size_t n = 0; n < text.size(); ++n) {
      CAPTURE(n);
      CHECK(tokens_text(std::string_view(text).substr(0, n)).substr(0, 6) == "error:");
    }
    Random random(7);
    for (int i = 0; i < 3000; ++i) {
      std::string damaged = text;
      for (std::size_t n = 1 + random.below(3); n-- != 0;) {
        char& c = damaged[random.below(text.size())];
        c = random.chance(30) ? static_cast<char>(random.bits()) : "[]{}\",:0 1e\\"[random.below(12)];
      }
      static_cast<void>(tokens_text(damaged));
    }
  }
}

TEST_SUITE_END();

}  // namespace burn_json_test
