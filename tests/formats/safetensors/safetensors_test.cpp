// The safetensors format: files of the reference implementation.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "support/left_out.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

#include "safetensors_file.hpp"

namespace safetensors_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::safetensors;
using namespace std::string_literals;

namespace {

/// Element k of every tensor, by the rule of tests/formats/safetensors/data/README.md.
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
  const std::string bytes = safetensors_golden(file);
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
  const std::string noted = safetensors_golden("metadata");
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
  const std::string file = safetensors_golden("plain");
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
  const auto path = shared_file("fixtures/safetensors/multi_layer.safetensors");
  if (!path) return;
  const auto opened = recorder.open(*path);
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
  CHECK(text_of(again->span()) == read_text(*path));
}

}  // namespace safetensors_test
