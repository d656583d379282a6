// Burnpack: files of Burn, files made by hand, and what is written for each thing that a Snapshot can say.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/burnpack.hpp"
#include "support/golden_text.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace burnpack_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const BurnpackRecorder<>& recorder = burnpack;
const Capabilities& able = recorder.format().capabilities();

/// A Snapshot of tensors of bytes and values, in the order of the calls.
class Made {
 public:
  Made() { builder_.begin(NodeKind::module, ""); }
  Made& tensor(std::string_view name, DType dtype, std::vector<Extent> shape, std::string_view bytes) {
    auto memory = std::make_shared<std::string>(in_file_order(std::string(bytes), dtype));
    builder_.tensor(builder_.intern(name), dtype, shape, memory->size(), {&memory_ops, memory->data(), 0});
    builder_.keep(std::move(memory));
    return *this;
  }
  Made& id(const ParamId& id) { return builder_.set_id(id), *this; }
  Made& note(std::string key, Value value) { return builder_.annotate(std::move(key), std::move(value)), *this; }
  Made& value(std::string_view name, Value value) {
    builder_.value(builder_.intern(name), std::move(value));
    return *this;
  }
  Made& metadata(std::map<std::string, std::string> entries) {
    return builder_.set_metadata(std::move(entries)), *this;
  }
  Snapshot finish() { return builder_.finish(); }

 private:
  SnapshotBuilder builder_;
};

const std::string native = cbor_map({cbor("Bool"), cbor("Native")});

}  // namespace

TEST_CASE("burnpack: a small file, byte by byte") {
  const Snapshot small = Made()
                             .tensor("w", DType::f32, {2}, "\0\0\x80\x3f\0\0\0\x40"s)
                             .id(ParamId::from_u64(0x0102030405060708))
                             .tensor("b", DType::u8, {}, "\x2a"s)
                             .value("steps", Value(std::int64_t{-7}))
                             .metadata({{"note", "hi"}})
                             .finish();
  const std::string description =
      "\xa3\x67tensors\xa2"
      "\x61"
      "b\xa3\x65"
      "dtype\x62U8\x65shape\x80\x6c"
      "data_offsets\x82\x19\x01\x00\x19\x01\x01"
      "\x61w\xa4\x65"
      "dtype\x63"
      "F32\x65shape\x81\x02\x6c"
      "data_offsets\x82\x00\x08\x68param_id\x1b\x01\x02\x03\x04\x05\x06\x07\x08"
      "\x68metadata\xa1\x64note\x62hi"
      "\x67scalars\xa1\x65steps\xa1\x63Int\x26"s;
  std::string file = "NRUB\x01\0"s + static_cast<char>(description.size()) + "\0\0\0"s + description;
  file.resize(256);
  file += "\0\0\x80\x3f\0\0\0\x40"s;
  file.resize(512);
  file += '\x2a';
  REQUIRE(description.size() < 256 - 10);
  CHECK(hex(written(small)) == hex(file));
  const Snapshot back = opened(file);
  CHECK(difference(facts(small, able), facts(back, able)) == "");
  CHECK(written(back) == file);
  CHECK(recorder.verify(bytes_of(file)));
  // Nothing at all: Burn fills up to 256 here too.
  std::string least = "NRUB\x01\0\x0a\0\0\0\xa1\x67tensors\xa0"s;
  least.resize(256);
  CHECK(written(Made().finish()) == least);
  CHECK(opened(least).leaf_count() == 0);
  CHECK(opened(least.substr(0, 20)).leaf_count() == 0);
  least[4] = 0;
  CHECK(opened(least).leaf_count() == 0);
}

TEST_CASE("burnpack: dtypes, and how Burn spells them") {
  static const std::pair<std::string, DType> plain[] = {{"F64", DType::f64},   {"F32", DType::f32}, {"F16", DType::f16},
                                                        {"BF16", DType::bf16}, {"I64", DType::i64}, {"I32", DType::i32},
                                                        {"I16", DType::i16},   {"I8", DType::i8},   {"U64", DType::u64},
                                                        {"U32", DType::u32},   {"U16", DType::u16}, {"U8", DType::u8}};
  for (const auto& each : plain) {
    const std::string& spelled = each.first;
    const DType dtype = each.second;
    CAPTURE(spelled);
    const std::string data = std::string("\1\2\3\4\5\6\7\x08").substr(0, element_size(dtype));
    const std::string file = pack_file({{"t", cbor(spelled), {1, 1}, 0, data.size()}}, data);
    CHECK(written(Made().tensor("t", dtype, {1, 1}, data).finish()) == file);
    const Snapshot back = opened(file);
    CHECK(back.leaf(0).dtype() == dtype);
    CHECK(back.leaf(0).annotations() == nullptr);
    CHECK(in_file_order(content(back.leaf(0)).value(), dtype) == data);
  }
  // Bool of today, Bool up to 0.20, and the stores whose elements are not one byte of 0 or 1.
  const std::string today = pack_file({{"t", native, {2}, 0, 2}}, "\1\0"s);
  CHECK(written(Made().tensor("t", DType::boolean, {2}, "\1\0"s).finish()) == today);
  CHECK(written(opened(today)) == today);
  CHECK(written(opened(pack_file({{"t", cbor("Bool"), {2}, 0, 2}}, "\1\0"s))) == today);
  for (const auto& [spelled, dtype, data] :
       {std::tuple(cbor_map({cbor("Bool"), cbor("U8")}), DType::boolean, "\1\0"s),
        std::tuple(cbor_map({cbor("Bool"), cbor("U32")}), DType::u32, "\1\0\0\0\0\0\0\0"s),
        std::tuple(cbor("Flex32"), DType::f32, "\1\2\3\4\5\6\7\x08"s)}) {
    const std::string file = pack_file({{"t", spelled, {2}, 0, data.size()}}, data);
    const Snapshot back = opened(file);
    CHECK(back.leaf(0).dtype() == dtype);
    CHECK(back.leaf(0).shape()[0] == 2);
    REQUIRE(back.leaf(0).annotations() != nullptr);
    CHECK(written(back) == file);
    // By way of .stele too.
    const auto between = saved(BinaryRecorder<>(), back);
    REQUIRE(between);
    CHECK(written(BinaryRecorder<>().open(*between).value()) == file);
  }
  CHECK(code_of(saved(recorder, Made().tensor("t", DType::c64, {1}, "12345678").finish())) == Errc::not_representable);
}

TEST_CASE("burnpack: quantized tensors are passed on as they are") {
  const std::string today = cbor_map({cbor("value"), cbor("Q8S"), cbor("store"), cbor_map({cbor("PackedU32"), cbor(0)}),
                                      cbor("mode"), cbor("Symmetric"), cbor("tensor"), "\xf6"s, cbor("block"),
                                      cbor_map({cbor("size"), cbor_list({cbor(32), "\xf9\x3c\x00"s, "\x26"s})})});
  const std::string scheme = cbor_map({cbor("QFloat"), today});
  const std::string file =
      pack_file({{"t", scheme, {2, 3}, 0, 12}, {"u", scheme, {}, 256, 256}}, "123456789abc"s + std::string(244, '\0'));
  const Snapshot back = opened(file);
  CHECK(back.leaf(0).dtype() == DType::u8);
  CHECK(back.leaf(0).byte_size() == 12);
  CHECK(written(back) == file);
  const auto between = saved(BinaryRecorder<>(), back);
  REQUIRE_MESSAGE(between, why(between));
  CHECK(written(BinaryRecorder<>().open(*between).value()) == file);
  // Burn could not read these schemes: bytes; a string that is not UTF-8; too many levels.
  const auto refused = [&](Value payload) {
    return code_of(saved(recorder, Made()
                                       .tensor("t", DType::u8, {1}, "1")
                                       .note("burn.dtype", Value(Value::Map{{"QFloat", std::move(payload)}}))
                                       .finish()));
  };
  CHECK(refused(Value(Value::Bytes(3))) == Errc::not_representable);
  CHECK(refused(Value(Value::Map{{"value", Value("\xff")}})) == Errc::not_representable);
  Value deep;
  for (int i = 0; i < 62; ++i) deep = Value(Value::Map{{"x", std::move(deep)}});
  CHECK(refused(std::move(deep)) == Errc::not_representable);
  CHECK(refused(Value(Value::Map{{"value", Value("Q8S")}})) == Errc::none);
}

TEST_CASE("burnpack: scalars are numbers and bools, the rest stands in the metadata") {
  const auto scalar = [](const std::string& kind, const std::string& value) {
    return pack_file(cbor_map({cbor("tensors"), cbor_map({}), cbor("scalars"),
                               cbor_map({cbor("s"), cbor_map({cbor(kind), value})})}),
                     "");
  };
  const auto real = [](double x) { return Value(x); };
  const std::pair<Value, std::string> exact[] = {
      {Value(true), scalar("Bool", "\xf5"s)},
      {Value(false), scalar("Bool", "\xf4"s)},
      {Value(std::int64_t{0}), scalar("UInt", "\x00"s)},
      {Value(std::int64_t{23}), scalar("UInt", "\x17"s)},
      {Value(std::int64_t{24}), scalar("UInt", "\x18\x18"s)},
      {Value(std::int64_t{-1}), scalar("Int", "\x20"s)},
      {Value(std::int64_t{-257}), scalar("Int", "\x39\x01\x00"s)},
      {Value(INT64_MIN), scalar("Int", "\x3b\x7f\xff\xff\xff\xff\xff\xff\xff"s)},
      {Value(std::int64_t{65536}), scalar("UInt", "\x1a\x00\x01\x00\x00"s)},
      {Value(UINT64_MAX), scalar("UInt", "\x1b\xff\xff\xff\xff\xff\xff\xff\xff"s)},
      // Floats: the narrowest that gives the same bits (RFC 8949, appendix A).
      {real(0.0), scalar("Float", "\xf9\x00\x00"s)},
      {real(-0.0), scalar("Float", "\xf9\x80\x00"s)},
      {real(1.0), scalar("Float", "\xf9\x3c\x00"s)},
      {real(1.5), scalar("Float", "\xf9\x3e\x00"s)},
      {real(65504.0), scalar("Float", "\xf9\x7b\xff"s)},
      {real(65536.0), scalar("Float", "\xfa\x47\x80\x00\x00"s)},
      {real(100000.0), scalar("Float", "\xfa\x47\xc3\x50\x00"s)},
      {real(5.960464477539063e-8), scalar("Float", "\xf9\x00\x01"s)},
      {real(0.00006103515625), scalar("Float", "\xf9\x04\x00"s)},
      {real(-4.0), scalar("Float", "\xf9\xc4\x00"s)},
      {real(3.4028234663852886e+38), scalar("Float", "\xfa\x7f\x7f\xff\xff"s)},
      {real(1.401298464324817e-45), scalar("Float", "\xfa\x00\x00\x00\x01"s)},
      {real(1.1), scalar("Float", "\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a"s)},
      {real(1e300), scalar("Float", "\xfb\x7e\x37\xe4\x3c\x88\x00\x75\x9c"s)},
      {real(4.9406564584124654e-324), scalar("Float", "\xfb\x00\x00\x00\x00\x00\x00\x00\x01"s)},
      {real(std::numeric_limits<double>::infinity()), scalar("Float", "\xf9\x7c\x00"s)},
      {real(std::bit_cast<double>(0x7ff8000000000000)), scalar("Float", "\xf9\x7e\x00"s)},
      {real(std::bit_cast<double>(0xfff8000020000000)), scalar("Float", "\xfa\xff\xc0\x00\x01"s)},
      {real(std::bit_cast<double>(0x7ff4000000000000)), scalar("Float", "\xfb\x7f\xf4\x00\x00\x00\x00\x00\x00"s)}};
  for (const auto& each : exact) {
    const Value& value = each.first;
    const std::string& file = each.second;
    CAPTURE(to_text(value));
    CHECK(hex(written(Made().value("s", value).finish())) == hex(file));
    const Snapshot back = opened(file);
    CHECK(to_text(back.value(back.nodes()[1])) == to_text(value));
  }
  // Wider than need be, and numbers that are not Int here: equal Values are equal.
  const std::pair<std::string, Value> wide[] = {
      {scalar("Int", "\x1b\0\0\0\0\0\0\0\5"s), Value(std::int64_t{5})},
      {scalar("UInt", "\x18\5"s), Value(std::int64_t{5})},
      {scalar("Float", "\xfa\x3f\x80\0\0"s), Value(1.0)},
      {scalar("Float", "\xf9\x7d\x00"s), Value(std::bit_cast<double>(0x7ff4000000000000))},
      {scalar("Float", "\xfb\x3f\xf0\0\0\0\0\0\0"s), Value(1.0)}};
  for (const auto& [file, value] : wide) {
    const Snapshot back = opened(file);
    CHECK(to_text(back.value(back.nodes()[1])) == to_text(value));
  }
  const Snapshot all = Made()
                           .value("none", Value())
                           .value("text", Value("t"))
                           .value("list", Value(Value::List{Value(1.5)}))
                           .value("map", Value(Value::Map{{"k", Value(true)}}))
                           .value("bytes", Value(Value::Bytes(2)))
                           .value("z", Value(1.5))
                           .value("a", Value(true))
                           .finish();
  const Snapshot back = opened(written(all));
  CHECK(difference(facts(all, able), facts(back, able)) == "");
  CHECK(back.metadata().empty());
  const std::string bytes = written(all);
  CHECK(bytes.find(cbor_map({cbor("a"), cbor_map({cbor("Bool"), "\xf5"s}), cbor("z"),
                             cbor_map({cbor("Float"), "\xf9\x3e\x00"s})})) != bytes.npos);
  CHECK(bytes.find("\"list\":[1.5]") != bytes.npos);
  CHECK(bytes.find("\"z\"") == bytes.npos);
}

TEST_CASE("burnpack: identities") {
  const ParamId uuid = ParamId::from_uuid(0x0123456789abcdef, 0xfedcba9876543210);
  const Snapshot snapshot = Made()
                                .tensor("a", DType::u8, {1}, "1")
                                .id(uuid)
                                .tensor("b", DType::u8, {0}, "")
                                .id(ParamId::from_u64(UINT64_MAX))
                                .tensor("c", DType::u8, {0}, "")
                                .finish();
  const std::string file = written(snapshot);
  const Snapshot back = opened(file);
  CHECK(back.find("a")->id() == uuid);
  CHECK(back.find("b")->id() == ParamId::from_u64(UINT64_MAX));
  CHECK_FALSE(back.find("c")->id());
  CHECK(file.find("\x6aparam_uuid\x78\x24"s + "01234567-89ab-cdef-fedc-ba9876543210") != file.npos);
  CHECK(written(back) == file);
  CHECK_FALSE(opened(pack_file({{"t", cbor("U8"), {1}, 0, 1, cbor("param_id") + "\xf6", 1}}, "1")).leaf(0).id());
}

TEST_CASE("burnpack: the data has the order of the module, the description is sorted") {
  const Snapshot snapshot = Made()
                                .tensor("z", DType::u8, {3}, "123")
                                .tensor("e", DType::f32, {0, 2}, "")
                                .tensor("a", DType::u8, {300}, std::string(300, 'a'))
                                .tensor("\xc3\xa9", DType::u8, {1}, "4")
                                .tensor("last", DType::u8, {0}, "")
                                .finish();
  const std::string file = written(snapshot);
  CHECK(file.size() == 256 + 1024);
  const Snapshot back = opened(file);
  // Tensors without bytes come before others at the same offset, in the order of their names.
  std::vector<std::string> names;
  for (std::size_t i = 0; i < back.leaf_count(); ++i) names.push_back(back.leaf(i).path());
  CHECK(names == std::vector<std::string>{"z", "e", "a", "\xc3\xa9", "last"});
  CHECK(written(back) == file);
  CHECK(recorder.verify(bytes_of(file)));
  CHECK(content(back.leaf(2)).value() == std::string(300, 'a'));
}

TEST_CASE("burnpack: nothing is aligned in files of 0.19") {
  const std::string data = "\1\2\3\4\5\6\7";
  const std::string file = pack_file({{"a", cbor("U8"), {3}, 4, 7}, {"b", cbor("F32"), {1}, 0, 4}}, data, false);
  const Snapshot back = opened(file);
  CHECK(back.leaf(0).path() == "b");
  CHECK(content(back.leaf(1)).value() == "\5\6\7");
  CHECK(recorder.verify(bytes_of(file)));
  CHECK(written(back) == pack_file({{"a", cbor("U8"), {3}, 256, 259}, {"b", cbor("F32"), {1}, 0, 4}},
                                   data.substr(0, 4) + std::string(252, '\0') + data.substr(4)));
  // All begin at multiples of 256: then the size decides, and the bytes in the place of padding.
  const std::vector<PackTensor> one = {{"t", cbor("U8"), {300}, 0, 300}};
  const std::string ones(300, '\1');
  CHECK(content(opened(pack_file(one, ones, false)).leaf(0)).value() == ones);
  CHECK(content(opened(pack_file(one, ones)).leaf(0)).value() == ones);
  // A cut file may have the same size: it must not load as other weights.
  const std::string zeros(300, '\0');
  const std::string cut = pack_file(one, zeros, false);
  CHECK(recorder.open(bytes_of(cut)).error().code() == Errc::truncated);
  const std::string says = pack_file(
      cbor_map({cbor("tensors"), pack_tensors(one), cbor("metadata"), cbor_map({cbor("version"), cbor("0.19.1")})}),
      zeros, false);
  CHECK(content(opened(says).leaf(0)).value() == zeros);
}

namespace {

struct Layer {
  Param<Tensor<float, 2>> weight;
  Tensor<float, 1> bias;
  STELE_MODULE(Layer, weight, bias)
};
struct Model {
  std::vector<Layer> layers;
  std::shared_ptr<Tensor<double>> tied_a, tied_b;
  std::optional<Tensor<bool>> mask;
  std::string name;
  int steps = 0;
  STELE_MODULE(Model, layers, tied_a, tied_b, mask, name, steps)
};

}  // namespace

TEST_CASE("burnpack: a module comes back") {
  Model model;
  model.layers.push_back({{Tensor<float, 2>({1, 2}, {1.F, 2.F}), ParamId::from_u64(7)}, Tensor<float, 1>({1}, {3.F})});
  model.tied_a = model.tied_b = std::make_shared<Tensor<double>>(Tensor<double>({1}, {4.0}));
  model.name = "m";
  model.steps = 12;
  const TempDir dir;
  const std::string path = dir / "model";
  REQUIRE(recorder.save(model, path, quick()));
  CHECK(std::filesystem::exists(path + ".bpk"));
  const auto back = recorder.load<Model>(path);
  REQUIRE_MESSAGE(back, why(back));
  CHECK(back->layers[0].weight.id == ParamId::from_u64(7));
  CHECK(back->layers[0].bias[0] == 3.F);
  CHECK(back->tied_a == back->tied_b);
  CHECK(back->steps == 12);
  CHECK(back->name == "m");
}

TEST_CASE("burnpack: random snapshots and modules come back") {
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Snapshot before = random_snapshot(random, able);
    const std::string bytes = written(before);
    const Snapshot after = opened(bytes);
    REQUIRE(difference(facts(before, able), facts(after, able)) == "");
    REQUIRE(written(after) == bytes);
  }
  Capabilities nested = able;
  nested.nesting = true;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Branch module = RandomModule(random, true).make();
    const auto bytes = saved(recorder, module);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto loaded = recorder.load<Branch>(bytes->span());
    REQUIRE_MESSAGE(loaded, why(loaded));
    REQUIRE(difference(facts(snapshot_of(module).value(), nested), facts(snapshot_of(*loaded).value(), nested)) == "");
    const auto again = saved(recorder, *loaded);
    REQUIRE(again);
    REQUIRE(text_of(again->span()) == text_of(bytes->span()));
  }
}

}  // namespace burnpack_test
