// The safetensors format: files of the reference implementation, and each rule of the format broken once.
#include <doctest/doctest.h>

#include <complex>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const SafetensorsRecorder<> recorder;

std::string golden(const std::string& name) { return read_text(test_data() + "/safetensors/" + name + ".safetensors"); }

/// Element k of every tensor, by the rule of tests/data/safetensors/README.md.
std::string by_rule(DType dtype, std::size_t bytes) {
  std::string text;
  const bool raw = (dtype >= DType::f8_e4m3fn && dtype <= DType::f4_e2m1);
  for (std::size_t k = 0; text.size() < bytes; ++k) {
    const auto n = static_cast<std::int64_t>(k % 7);
    const auto real = static_cast<float>(n - 2);
    if (raw) {
      put(text, static_cast<std::uint8_t>(k));
    } else if (dtype == DType::boolean) {
      put(text, static_cast<std::uint8_t>(k % 2));
    } else if (dtype == DType::c64) {
      put(text, std::bit_cast<std::uint32_t>(real)), put(text, 0U);
    } else if (dtype == DType::f64) {
      put(text, std::bit_cast<std::uint64_t>(static_cast<double>(real)));
    } else if (dtype == DType::f32) {
      put(text, std::bit_cast<std::uint32_t>(real));
    } else if (dtype == DType::f16) {
      put(text, float16(real).bits);
    } else if (dtype == DType::bf16) {
      put(text, bfloat16(real).bits);
    } else {
      const bool sign = dtype_class(dtype) == DTypeClass::signed_int;
      const auto number = static_cast<std::uint64_t>(sign ? n - 2 : n);
      for (unsigned i = 0; i < element_size(dtype); ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
    }
  }
  return text;
}

struct Expected {
  std::string name;
  DType dtype;
  std::vector<Extent> shape;
};

void check_golden(const std::string& file, const std::vector<Expected>& expected) {
  CAPTURE(file);
  const std::string bytes = golden(file);
  const auto opened = recorder.open(bytes_of(bytes));
  REQUIRE_MESSAGE(opened, why(opened));
  REQUIRE(opened->leaf_count() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const LeafView leaf = opened->leaf(i);
    CAPTURE(expected[i].name);
    CHECK(leaf.path() == expected[i].name);
    CHECK(leaf.dtype() == expected[i].dtype);
    CHECK(Shape(leaf.shape()) == Shape(expected[i].shape));
    const auto all = content(leaf);
    REQUIRE_MESSAGE(all, why(all));
    CHECK(in_file_order(*all, leaf.dtype()) == by_rule(leaf.dtype(), static_cast<std::size_t>(leaf.byte_size())));
  }
  const auto again = saved(recorder, *opened);
  REQUIRE_MESSAGE(again, why(again));
  CHECK(text_of(again->span()) == bytes);
  CHECK(recorder.verify(bytes_of(bytes)));
  // By way of .stele too.
  const auto between = saved(BinaryRecorder<>(), *opened);
  REQUIRE_MESSAGE(between, why(between));
  const auto back = saved(recorder, BinaryRecorder<>().open(*between).value());
  REQUIRE_MESSAGE(back, why(back));
  CHECK(text_of(back->span()) == bytes);
}

std::string file_of(std::string_view header, std::string_view data = {}) {
  std::string file;
  put(file, std::uint64_t{header.size()});
  return file + std::string(header) + std::string(data);
}

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

TEST_CASE("safetensors: files of the reference implementation") {
  check_golden("plain", {{"index", DType::i64, {8}},
                         {"a.last.in.insertion", DType::f32, {2, 2, 2}},
                         {"layer.bias", DType::f32, {4}},
                         {"layer.weight", DType::f32, {4, 3}},
                         {"half", DType::f16, {2, 5}},
                         {"bytes", DType::u8, {3, 5}},
                         {"mask", DType::boolean, {9}}});
  check_golden("alldtypes", {{"u64", DType::u64, {3, 5}},
                             {"i64", DType::i64, {3, 5}},
                             {"f64", DType::f64, {3, 5}},
                             {"c64", DType::c64, {3, 5}},
                             {"f32", DType::f32, {3, 5}},
                             {"u32", DType::u32, {3, 5}},
                             {"i32", DType::i32, {3, 5}},
                             {"bf16", DType::bf16, {3, 5}},
                             {"f16", DType::f16, {3, 5}},
                             {"u16", DType::u16, {3, 5}},
                             {"i16", DType::i16, {3, 5}},
                             {"f8_e5m2fnuz", DType::f8_e5m2fnuz, {16, 17}},
                             {"f8_e4m3fnuz", DType::f8_e4m3fnuz, {16, 17}},
                             {"f8_e8m0", DType::f8_e8m0, {16, 17}},
                             {"f8_e4m3", DType::f8_e4m3fn, {16, 17}},
                             {"f8_e5m2", DType::f8_e5m2, {16, 17}},
                             {"i8", DType::i8, {3, 5}},
                             {"u8", DType::u8, {3, 5}},
                             {"f4", DType::f4_e2m1, {16, 34}},
                             {"bool", DType::boolean, {3, 5}}});
  check_golden("zero", {{"none.i64", DType::i64, {0}},
                        {"scalar.i64", DType::i64, {}},
                        {"hollow.f32", DType::f32, {3, 0, 2}},
                        {"none.f32", DType::f32, {0}},
                        {"scalar.f32", DType::f32, {}},
                        {"hollow.f16", DType::f16, {3, 0, 2}},
                        {"none.u8", DType::u8, {0}},
                        {"scalar.u8", DType::u8, {}},
                        {"none.f4", DType::f4_e2m1, {0}},
                        {"hollow.bool", DType::boolean, {3, 0, 2}},
                        {"scalar.bool", DType::boolean, {}}});
  check_golden("empty", {});
  check_golden("metadata", {{"weight", DType::f32, {2, 3}}});
  check_golden("unicode", {{"", DType::i16, {13}},
                           {"Z", DType::i16, {12}},
                           {"a", DType::i16, {11}},
                           {"a.b", DType::i16, {9}},
                           {"a/b", DType::i16, {10}},
                           {"back\\slash", DType::i16, {8}},
                           {"cafe\u0301", DType::i16, {5}},
                           {"caf\u00e9", DType::i16, {4}},
                           {"quo\"te", DType::i16, {7}},
                           {"with space", DType::i16, {6}},
                           {"\u65e5\u672c\u8a9e", DType::i16, {3}},
                           {"\uff5e", DType::i16, {2}},
                           {"\U0001f600", DType::i16, {1}}});
  const std::string noted = golden("metadata");
  CHECK(
      recorder.open(bytes_of(noted)).value().metadata() ==
      std::map<std::string, std::string>{{"note", "caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 said \"yes\" \\ no / end"}});
}

namespace {
struct PlainLayer {
  Tensor<float, 1> bias;
  Tensor<float, 2> weight;
  STELE_MODULE(PlainLayer, bias, weight)
};
struct Plain {
  Tensor<bool, 1> mask;
  std::map<std::string, std::map<std::string, std::map<std::string, Tensor<float, 3>>>> a;
  Tensor<std::uint8_t, 2> bytes;
  PlainLayer layer;
  Tensor<float16, 2> half;
  Tensor<std::int64_t, 1> index;
  STELE_MODULE(Plain, mask, a, bytes, layer, half, index)
};
struct Attention {
  std::vector<Tensor<float, 3>> attn;
  STELE_MODULE(Attention, attn)
};
}  // namespace

TEST_CASE("safetensors: a module gives the reference's bytes") {
  const std::string file = golden("plain");
  const auto module = recorder.load<Plain>(bytes_of(file));
  REQUIRE_MESSAGE(module, why(module));
  CHECK(module->layer.weight(3, 2) == 2.F);  // k = 11
  CHECK(module->index[7] == -2);
  CHECK(module->mask[1]);
  const auto again = saved(recorder, *module);
  REQUIRE_MESSAGE(again, why(again));
  CHECK(text_of(again->span()) == file);

  // test_serialization of the reference, tensor.rs.
  Attention attention;
  attention.attn.emplace_back(Tensor<float, 3>({1, 2, 3}, {0, 1, 2, 3, 4, 5}));
  const auto bytes = saved(recorder, attention);
  REQUIRE(bytes);
  const std::string header = R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})";
  REQUIRE(header.size() == 64);
  CHECK(text_of(bytes->span()) ==
        file_of(header, "\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40"s));
}

TEST_CASE("safetensors: a file of another writer") {
  const char* const shared = std::getenv("STELE_SHARED");
  const std::string folder = shared != nullptr ? shared : test_data() + "/../../../shared";
  const std::string path = folder + "/fixtures/safetensors/multi_layer.safetensors";
  if (!std::filesystem::exists(path)) {
    MESSAGE("left out: there is no shared folder");
    return;
  }
  const auto opened = recorder.open(path);
  REQUIRE_MESSAGE(opened, why(opened));
  CHECK(opened->leaf_count() == 9);
  std::size_t longs = 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const bool is_long = leaf.dtype() == DType::i64;
    longs += is_long;
    CHECK((is_long || leaf.dtype() == DType::f32));
    CHECK(content(leaf));
  }
  CHECK(longs == 1);
  const auto again = saved(recorder, *opened);
  REQUIRE(again);
  CHECK(text_of(again->span()) == read_text(path));
}

// ---- each rule once -------------------------------------------------------------------------------------------------

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
  const std::string whole = golden("metadata");
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
      "1234", Errc::duplicate, 0, "a");
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
  // What is not known is ignored, if it is JSON.
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
  refused("", Errc::truncated);
  refused("{}", Errc::malformed);
  refused("[]", Errc::malformed);
  refused(R"({"version":2})", Errc::unsupported);
  refused(R"({"version":0})", Errc::unsupported);
  refused(R"({"version":1.0})", Errc::malformed);
  refused(R"({"values":{},"version":1})", Errc::malformed);
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
  refused(R"({"version":1,"versions":{"m":-1}})", Errc::out_of_range);
  refused(R"({"version":1,"values":{"v":{"$what":1}}})", Errc::unsupported);
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
