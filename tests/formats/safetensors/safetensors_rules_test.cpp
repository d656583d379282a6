// Each rule of the safetensors format broken once.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

#include "safetensors_file.hpp"

namespace safetensors_rules_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::safetensors;
using namespace std::string_literals;

namespace {

/// The error of a file whose header is `header`; a ^ in it marks the place that the error must name.
void check_refused(std::string header, std::string_view data, Errc code) {
  CAPTURE(header);
  const std::size_t mark = header.find('^');
  if (mark != std::string::npos) header.erase(mark, 1);
  const std::string file = file_of(header, data);
  const auto opened = recorder.open(bytes_of(file));
  REQUIRE(!opened);
  CHECK(name(opened.error().code()) == name(code));
  if (mark != std::string::npos) {
    REQUIRE(opened.error().offset());
    CHECK(*opened.error().offset() == 8 + mark);
  }
  CHECK(opened.error().file() == "memory");
}

/// The same for a rule about the data: `at` counts from its beginning, and `path` is the tensor to blame.
void check_refused_at(const std::string& header, std::string_view data, Errc code, std::uint64_t at,
                      const std::string& path) {
  CAPTURE(header);
  const std::string file = file_of(header, data);
  const auto opened = recorder.open(bytes_of(file));
  REQUIRE(!opened);
  CHECK(name(opened.error().code()) == name(code));
  REQUIRE(opened.error().offset());
  CHECK(*opened.error().offset() == 8 + header.size() + at);
  CHECK(opened.error().path() == path);
}

Snapshot accepted(const std::string& header, std::string_view data = {}) {
  CAPTURE(header);
  auto bytes = Bytes(8 + header.size() + data.size());
  const std::string file = file_of(header, data);
  std::copy(file.begin(), file.end(), reinterpret_cast<char*>(bytes.data()));
  auto opened = recorder.open(own_bytes(std::move(bytes)));
  REQUIRE_MESSAGE(opened, why(opened));
  return *std::move(opened);
}

}  // namespace

TEST_CASE("safetensors: the length of the header") {
  const auto error = [](const std::string& file) { return recorder.open(bytes_of(file)).error().code(); };
  CHECK(error("") == Errc::truncated);
  CHECK(error("{") == Errc::truncated);
  CHECK(error("\2\0\0\0\0\0\0"s) == Errc::truncated);
  CHECK(error("\2\0\0\0\0\0\0\0"s) == Errc::truncated);
  CHECK(error("\2\0\0\0\0\0\0\0{"s) == Errc::truncated);
  CHECK(error("\xff\xff\xff\xff\xff\xff\xff\xff{}"s) == Errc::limit);
  CHECK(error("\x01\xe1\xf5\x05\0\0\0\0{}"s) == Errc::limit);      // 100,000,001
  CHECK(error("\x00\xe1\xf5\x05\0\0\0\0{}"s) == Errc::truncated);  // 100,000,000
  CHECK(error("\0\0\0\0\0\0\0\0"s) == Errc::truncated);            // no object at all
  CHECK(recorder.open(bytes_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"))).error().offset() == 0U);
  // Ten bytes are a whole file; safetensors-cpp refuses it.
  CHECK(accepted("{}").leaf_count() == 0);
  CHECK(accepted(" \t\r\n{}").leaf_count() == 0);
  CHECK(accepted("{}    \n").leaf_count() == 0);
  CHECK(accepted("{\"__metadata__\":{}}").leaf_count() == 0);
}

TEST_CASE("safetensors: headers that are no JSON") {
  const std::string t = R"("dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  check_refused("^[]", "", Errc::malformed);
  check_refused("^\xef\xbb\xbf{}", "", Errc::malformed);
  check_refused("^1", "", Errc::malformed);
  check_refused("{^", "", Errc::truncated);
  check_refused("{}^x", "", Errc::malformed);
  check_refused("{}^{}", "", Errc::malformed);
  check_refused("{}^\0"s, "", Errc::malformed);
  check_refused("{\"a\":{" + t + ",^}", "1", Errc::malformed);
  check_refused("{\"a\":{" + t + ",^,}", "1", Errc::malformed);
  check_refused("{^a:{" + t + "}", "1", Errc::malformed);
  check_refused("{^'a':{" + t + "}", "1", Errc::malformed);
  check_refused("{/**/}", "", Errc::malformed);
  check_refused("{\"a\":^1}", "1", Errc::malformed);
  check_refused("{\"a\":^null}", "1", Errc::malformed);
  check_refused("{\"a\":^[]}", "1", Errc::malformed);
  // Names.
  CHECK(accepted("{\"a\\u0000b\":{" + t + "}", "1").leaf(0).path() == "a\0b"s);
  CHECK(accepted("{\"\\ud83d\\ude00\":{" + t + "}", "1").leaf(0).path() == "\U0001f600");
  for (const std::string& bad : {"\xff"s, "\xc0\x80"s, "\xed\xa0\x80"s, "\xf4\x90\x80\x80"s, "\xe6\x97"s, "\n"s, "\0"s,
                                 "\\x"s, "\\ud83d"s, "\\ude00"s, "\\ud83d\\u0041"s, "\\u12g4"s}) {
    check_refused("{\"" + bad + "\":{" + t + "}", "1", Errc::malformed);
  }
  // Depth: the reference ignores unknown fields, 20,000 deep ones overflow the stack of safetensors-cpp.
  for (const std::string& open : {"["s, "{\"a\":"s}) {
    std::string deep;
    for (int i = 0; i < 20000; ++i) deep += open;
    check_refused("{\"a\":{\"x\":" + deep, "", Errc::limit);
    check_refused("{\"a\":{\"shape\":" + deep, "", Errc::malformed);
    check_refused("{\"a\":" + deep, "", open == "[" ? Errc::malformed : Errc::limit);
    check_refused(deep, "", open == "[" ? Errc::malformed : Errc::limit);
  }
  // Each truncation, with the length as it then is and as it was.
  const std::string whole = safetensors_golden("metadata");
  for (std::size_t size = 8; size < whole.size(); ++size) {
    CAPTURE(size);
    std::string part = whole.substr(0, size);
    CHECK(!recorder.open(bytes_of(part)));
    put_at(part, 0, std::uint64_t{size - 8});
    CHECK(!recorder.open(bytes_of(part)));
  }
}

TEST_CASE("safetensors: duplicates") {
  const std::string t = R"({"dtype":"U8","shape":[1],"data_offsets":)";
  check_refused_at("{\"a\":" + t + "[0,1]},\"a\":" + t + "[1,2]}}", "12", Errc::duplicate, 0, "a");
  // The same range under two dtypes: last wins elsewhere.
  check_refused_at(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      "1234", Errc::malformed, 0, "a");
  check_refused_at("{\"a\":" + t + "[0,1]},\"\\u0061\":" + t + "[1,2]}}", "12", Errc::duplicate, 0, "a");
  check_refused("{\"__metadata__\":{\"k\":\"1\",\"k\":^\"1\"}}", "", Errc::duplicate);
  check_refused("{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":^\"2\"}}", "", Errc::duplicate);
  check_refused("{\"__metadata__\":{},^\"__metadata__\":{}}", "", Errc::duplicate);
  for (const std::string& twice : {R"("dtype":"U8")"s, R"("shape":[1])"s, R"("data_offsets":[0,1])"s}) {
    check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],^)" + twice + "}}", "1", Errc::duplicate);
  }
}

TEST_CASE("safetensors: one owner for every byte") {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  CHECK(accepted(two("[0,2]", "[2,4]"), "1234").leaf(1).path() == "b");
  CHECK(accepted(two("[2,4]", "[0,2]"), "1234").leaf(0).path() == "b");
  check_refused_at(two("[0,2]", "[3,5]"), "12345", Errc::malformed, 3, "b");  // a hole
  check_refused_at(two("[1,3]", "[3,5]"), "12345", Errc::malformed, 1, "a");  // a hole at the beginning
  check_refused_at(two("[0,2]", "[1,3]"), "123", Errc::malformed, 1, "b");    // an overlap
  check_refused_at(two("[0,2]", "[0,2]"), "12", Errc::malformed, 0, "b");     // the same range
  check_refused_at(two("[0,2]", "[2,4]"), "12345", Errc::malformed, 4, "");   // bytes behind
  check_refused_at(two("[0,2]", "[2,4]"), "123", Errc::truncated, 2, "b");
  check_refused_at(two("[2,0]", "[0,2]"), "12", Errc::malformed, 2, "a");  // ends before it begins
  check_refused_at("{}", "1", Errc::malformed, 0, "");
  std::string attack = "{";  // test_json_attack
  for (int i = 0; i < 10; ++i) {
    attack +=
        (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + R"(":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})";
  }
  check_refused_at(attack + "}", std::string(16, '\0'), Errc::malformed, 0, "t1");
  // Tensors without elements may stand anywhere between the others.
  const Snapshot zero = accepted(
      R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"c":{"dtype":"F64","shape":[3,0],"data_offsets":[2,2]},"d":{"dtype":"F64","shape":[0],"data_offsets":[2,2]}})",
      "12");
  CHECK(zero.leaf_count() == 4);
  CHECK(accepted(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234").leaf(0).size() == 1);
}

TEST_CASE("safetensors: dtype, shape and offsets") {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  const std::string u8 = "\"U8\"";
  // Lengths.
  check_refused_at(tensor(u8, "[2]", "[0,1]"), "1", Errc::malformed, 0, "a");
  check_refused_at(tensor("\"F32\"", "[1]", "[0,8]"), "12345678", Errc::malformed, 0, "a");
  check_refused_at(tensor("\"I32\"", "[2,9223372036854775807]", "[0,0]"), "", Errc::malformed, 0, "a");
  check_refused_at(tensor(u8, "[4294967296,4294967296]", "[0,0]"), "", Errc::malformed, 0, "a");
  check_refused_at(tensor(u8, "[4294967296,4294967296,4]", "[0,0]"), "", Errc::malformed, 0, "a");
  check_refused_at(tensor("\"F64\"", "[2305843009213693952]", "[0,0]"), "", Errc::malformed, 0, "a");
  check_refused_at(tensor("\"F4\"", "[3]", "[0,2]"), "12", Errc::malformed, 0, "a");
  check_refused_at(tensor("\"F4\"", "[3]", "[0,1]"), "1", Errc::malformed, 0, "a");
  check_refused_at(tensor("\"F6_E2M3\"", "[3]", "[0,3]"), "123", Errc::malformed, 0, "a");
  check_refused_at(tensor(u8, "[18446744073709551615]", "[0,18446744073709551615]"), "", Errc::truncated, 0, "a");
  CHECK(accepted(tensor("\"F4\"", "[4]", "[0,2]"), "12").leaf(0).dtype() == DType::f4_e2m1);
  CHECK(accepted(tensor("\"F6_E3M2\"", "[4]", "[0,3]"), "123").leaf(0).dtype() == DType::f6_e3m2);
  CHECK(accepted(tensor("\"F6_E2M3\"", "[2,2]", "[0,3]"), "123").leaf(0).dtype() == DType::f6_e2m3);
  CHECK(accepted(tensor("\"F8_E8M0\"", "[1]", "[0,1]"), "1").leaf(0).dtype() == DType::f8_e8m0);
  check_refused_at(tensor(u8, "[18446744073709551615,0,18446744073709551615]", "[0,0]"), "", Errc::malformed, 0, "a");
  CHECK(accepted(tensor(u8, "[18446744073709551615,0]", "[0,0]")).leaf(0).size() == 0);
  // Numbers.
  check_refused(tensor(u8, "[^-1]", "[0,1]"), "1", Errc::out_of_range);
  check_refused(tensor(u8, "[1]", "[0,^-1]"), "1", Errc::out_of_range);
  for (const std::string& n :
       {"4.0"s, "1e2"s, "-0"s, "01"s, "+1"s, "\"1\""s, "null"s, "true"s, "NaN"s, "[1]"s, ".5"s}) {
    check_refused(tensor(u8, "[^" + n + "]", "[0,1]"), "1", Errc::malformed);
    check_refused(tensor(u8, "[1]", "[0,^" + n + "]"), "1", Errc::malformed);
  }
  check_refused(tensor(u8, "[^18446744073709551616]", "[0,1]"), "1", Errc::out_of_range);
  check_refused(tensor(u8, "[1]", "[0,^99999999999999999999]"), "1", Errc::out_of_range);
  // Kinds.
  check_refused(tensor("^1", "[1]", "[0,1]"), "1", Errc::malformed);
  check_refused(tensor("^null", "[1]", "[0,1]"), "1", Errc::malformed);
  check_refused(tensor(u8, "^1", "[0,1]"), "1", Errc::malformed);
  check_refused(tensor(u8, "^{}", "[0,1]"), "1", Errc::malformed);
  check_refused(tensor(u8, "[1]", "^{}"), "1", Errc::malformed);
  check_refused(tensor(u8, "[1]", "[]"), "1", Errc::malformed);
  check_refused(tensor(u8, "[1]", "[1]"), "1", Errc::malformed);
  check_refused(tensor(u8, "[1]", "[0,1,2]"), "1", Errc::malformed);
  for (const std::string& dtype : {"\"f32\""s, "\"F128\""s, "\"\""s, "\"F32 \""s, "\"C128\""s, "\"I4\""s}) {
    check_refused(tensor("^" + dtype, "[1]", "[0,1]"), "1", Errc::unsupported);
  }
  check_refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", "1", Errc::malformed);
  check_refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "1", Errc::malformed);
  check_refused(R"({"a":{"dtype":"U8","shape":[1]}})", "1", Errc::malformed);
  check_refused(R"({"a":{}})", "", Errc::malformed);
  // Unknown fields are ignored if they are JSON.
  CHECK(accepted(R"({"a":{"x":[1,{"y":null}],"dtype":"U8","shape":[1],"data_offsets":[0,1],"z":"\ud83d\ude00"}})", "1")
            .leaf_count() == 1);
  check_refused(R"({"a":{"x":^NaN,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1", Errc::malformed);
  // Metadata.
  check_refused(R"({"__metadata__":{"k":^1}})", "", Errc::malformed);
  check_refused(R"({"__metadata__":{"k":^null}})", "", Errc::malformed);
  check_refused(R"({"__metadata__":{"k":^{}}})", "", Errc::malformed);
  check_refused(R"({"__metadata__":^[]})", "", Errc::malformed);
  CHECK(accepted(R"({"__metadata__":null})").metadata().empty());  // as the reference has it
  std::string rank = "0";
  for (int i = 1; i < 70000; ++i) rank += ",0";
  check_refused(tensor(u8, "[" + rank + "]", "[0,0]"), "", Errc::limit);
  rank.resize(2 * 65535 - 1);
  CHECK(accepted(tensor(u8, "[" + rank + "]", "[0,0]")).leaf(0).shape().size() == 65535);
}

TEST_CASE("safetensors: the metadata key stele") {
  const auto with = [](const std::string& extras) {
    std::string quoted;
    for (const char c : extras) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    return R"({"__metadata__":{"stele":")" + quoted + R"("},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  };
  const auto refused = [&](const std::string& extras, Errc code) { check_refused(with(extras), "1", code); };
  const Snapshot good = accepted(
      with(
          R"({"version":1,"values":{"v":1.5,"m.n":[]},"aliases":{"x":"w","y":"m"},"empty":{"e":"list","n":"none"},"versions":{"":3,"m":2}})"),
      "1");
  CHECK(good.find("x")->path() == "w");
  CHECK(good.version(good.nodes()[0]) == 3);
  CHECK(good.metadata().empty());
  for (const char* const other : {"", "{}", "[]", "mine", R"({"values":{},"version":1})"}) {  // another program's
    CHECK(accepted(with(other), "1").metadata().at("stele") == other);
  }
  refused(R"({"version":2})", Errc::unsupported);
  refused(R"({"version":0})", Errc::unsupported);
  refused(R"({"version":1.0})", Errc::malformed);
  refused(R"({"version":1,"later":{"x":1}})", Errc::unsupported);
  refused(R"({"version":1}x)", Errc::malformed);
  refused(R"({"version":1,"values":{"w":1}})", Errc::duplicate);
  refused(R"({"version":1,"values":{"v":1,"v":1}})", Errc::duplicate);
  refused(R"({"version":1,"values":{"v":1},"aliases":{"v":"w"}})", Errc::duplicate);
  refused(R"({"version":1,"aliases":{"w":"v"}})", Errc::duplicate);
  refused(R"({"version":1,"aliases":{"x":"x"}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x":"x.y"}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x.y":"x"}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x":"y","y":"x"}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x":"w","y":"x"}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x":1}})", Errc::malformed);
  refused(R"({"version":1,"empty":{"e":"tensor"}})", Errc::malformed);
  refused(R"({"version":1,"empty":{"e":"alias"}})", Errc::malformed);
  refused(R"({"version":1,"empty":{"e":1}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x":"nothing"}})", Errc::malformed);
  refused(R"({"version":1,"values":{"m.v":1},"aliases":{"x":"m.n"}})", Errc::malformed);
  refused(R"({"version":1,"values":{"v":1},"values":{"u":1}})", Errc::duplicate);
  refused(R"({"version":1,"versions":{"":1},"versions":{"m":1}})", Errc::duplicate);
  refused(R"({"version":1,"versions":{"m":-1}})", Errc::out_of_range);
  refused(R"({"version":1,"versions":{"m":0}})", Errc::malformed);
  refused(R"({"version":1,"versions":{"w":1}})", Errc::malformed);
  refused(R"({"version":1,"values":{"v":1},"versions":{"v":1}})", Errc::malformed);
  refused(R"({"version":1,"versions":{"v":1},"values":{"v":1}})", Errc::malformed);
  refused(R"({"version":1,"empty":{"n":"none"},"versions":{"n":1}})", Errc::malformed);
  refused(R"({"version":1,"aliases":{"x":"w"},"versions":{"x":1}})", Errc::malformed);
  refused(R"({"version":1,"values":{"v":{"$what":1}}})", Errc::unsupported);
  // A container that no name shows, of a class with a version; and the target of an alias.
  CHECK(accepted(with(R"({"version":1,"aliases":{"x":"m"},"versions":{"m":2}})"), "1").leaf_count() == 1);
  SnapshotBuilder hidden;
  hidden.begin(NodeKind::module, "");
  const std::uint32_t target = hidden.begin(NodeKind::module, "m");
  hidden.end();
  hidden.alias("x", target);
  const auto file = saved(recorder, hidden.finish());
  REQUIRE_MESSAGE(file, why(file));
  const auto again = recorder.open(*file);
  REQUIRE_MESSAGE(again, why(again));
  CHECK(again->nodes().size() == 3);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[";
  refused(R"({"version":1,"values":{"v":)" + deep + "}}", Errc::limit);
  // The key cannot be the user's, and a tensor cannot have the other reserved name.
  SaveOptions options;
  options.metadata = {{"stele", "mine"}};
  struct Local {
    static Snapshot of(std::string_view name, Value value) {
      static const std::byte byte{};
      SnapshotBuilder builder;
      builder.begin(NodeKind::module, "");
      builder.tensor(builder.intern(name), DType::u8, std::vector<Extent>{1}, 1, {&memory_ops, &byte, 0});
      if (!value.is_null()) builder.value("v", std::move(value));
      return builder.finish();
    }
  };
  CHECK(code_of(saved(recorder, Local::of("t", Value(true)), options)) == Errc::not_representable);
  CHECK(code_of(saved(recorder, Local::of("__metadata__", Value()))) == Errc::not_representable);
  CHECK(code_of(saved(recorder, Local::of("\xff", Value()))) == Errc::not_representable);
  options.metadata = {{"k", "\xff"}};
  CHECK(code_of(saved(recorder, Local::of("t", Value()), options)) == Errc::not_representable);
}

}  // namespace safetensors_rules_test
