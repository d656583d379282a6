// GGUF files: their layout, key-value pairs, split sets, what cannot be stored.
#include <stele/bundle.hpp>
#include <stele/checkpoint.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "encodings/gguf/pairs.hpp"
#include "io/cursor.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

#include "gguf_file.hpp"

namespace gguf_test {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using gguf::architecture;
using gguf::number;
using gguf::pair;
using gguf::tensor;
using gguf::text;

namespace {

std::string unhex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

/// Written by gguf_write_to_file of ggml d99724f: a, f32 [2, 4]; b, q8_0 [32]; all data bytes are 1.
std::string golden() {
  std::string bytes = unhex(
      "4747554603000000020000000000000001000000000000001400000000000000"
      "67656e6572616c2e617263686974656374757265080000000400000000000000"
      "7465737401000000000000006102000000040000000000000002000000000000"
      "0000000000000000000000000001000000000000006201000000200000000000"
      "0000080000002000000000000000000000000000000000000000000000000000");
  bytes.resize(160 + 66, '\1');
  bytes.resize(256);
  return bytes;
}

std::string saved_text(const Snapshot& snapshot) {
  const auto bytes = saved(GgufRecorder<>(), snapshot);
  REQUIRE_MESSAGE(bytes, why(bytes));
  return std::string(text_of(bytes->span()));
}

}  // namespace

TEST_CASE("gguf: a file of ggml") {
  const auto opened = gguf::open(golden());
  REQUIRE_MESSAGE(opened, why(opened));
  REQUIRE(opened->leaf_count() == 2);
  const LeafView a = opened->leaf(0), b = opened->leaf(1);
  CHECK(a.path() == "a");
  CHECK(a.dtype() == DType::f32);
  CHECK(to_string(a.shape()) == "[2, 4]");
  CHECK(content(a).value() == std::string(32, '\1'));
  CHECK(b.path() == "b");
  CHECK(b.dtype() == DType::q8_0);
  CHECK(name(b.dtype()) == "q8_0");
  CHECK(to_string(b.shape()) == "[32]");
  CHECK(b.size() == 32);
  CHECK(content(b).value() == std::string(34, '\1'));
  CHECK(opened->metadata().at("general.architecture") == "test");
  CHECK(*opened->properties().find("general.architecture") == Value("test"));
  // A file that is saved unchanged keeps its bytes: it has neither a type of the file nor a version of quantization.
  CHECK(saved_text(*opened) == golden());
  CHECK(saved_text(rename(*opened, {{"^b$", "c"}}).value()).size() == golden().size());
  // With other tensors, it gets them.
  const auto b_alone = gguf::open(saved_text(filter(*opened, {.include = {"b"}}).value())).value();
  CHECK(*b_alone.properties().find("general.quantization_version") == Value(std::int64_t{2}));
  const auto first = filter(*opened, {.include = {"a"}}).value();
  std::string wanted = gguf::file({architecture()}, {tensor("a", {4, 2}, 0, 0)}, std::string(32, '\1'));
  CHECK(saved_text(first) == wanted);
}

TEST_CASE("gguf: the type of the file changes with its tensors alone") {
  // Most matrices are f32, but the file declares Q4_K_M: as mixtures of experts do.
  const std::vector<std::string> pairs = {architecture(), pair("general.file_type", 4, number(std::uint32_t{15}))};
  const std::string file =
      gguf::file(pairs, {tensor("a", {4, 2}, 0, 0), tensor("b", {256, 2}, 12, 32)}, std::string(32 + 288, '\1'));
  const Snapshot opened = gguf::open(file).value();
  CHECK(saved_text(opened) == file);
  // Through another format, too.
  const auto text = saved(BinaryRecorder<>(), opened).value();
  CHECK(saved_text(BinaryRecorder<>().open(text).value()) == file);
  const auto changed =
      gguf::open(std::string(text_of(saved(GgufRecorder<FullPrecision>(), opened).value().span()))).value();
  CHECK(*changed.properties().find("general.file_type") == Value(std::int64_t{0}));
  // A mixture is declared as the caller named it.
  const Snapshot mixed = quantize_gguf(opened, "Q5_K_M").value();
  const auto reopened = gguf::open(saved_text(mixed)).value();
  CHECK(*reopened.properties().find("general.file_type") == Value(std::int64_t{17}));
  CHECK(*reopened.properties().find("general.quantization_version") == Value(std::int64_t{2}));
}

TEST_CASE("gguf: mixtures of a model with eight experts, and the type of each file") {
  // src/llama-quant.cpp of llama.cpp: attn_v and attn_k have an eighth of the size of other matrices.
  const char* const names[] = {"blk.0.attn_v.weight", "blk.0.attn_k.weight", "blk.0.attn_output.weight"};
  const auto model = [&](std::uint32_t experts) {
    std::vector<std::string> tensors;
    for (std::uint64_t i = 0; i < 3; ++i) tensors.push_back(tensor(names[i], {256, 2}, 0, i * 2048));
    return gguf::open(gguf::file({architecture("llama"), pair("llama.expert_count", 4, number(experts))}, tensors,
                                 std::string(3 * 2048, '\0')))
        .value();
  };
  struct Row {
    const char* mixture;
    std::int64_t file_type;  // llama_ftype of llama.h
    const char *eight, *seven;
  };
  const Row rows[] = {
      {"F32", 0, "f32 f32 f32 ", "f32 f32 f32 "},
      {"F16", 1, "f16 f16 f16 ", "f16 f16 f16 "},
      {"BF16", 32, "bf16 bf16 bf16 ", "bf16 bf16 bf16 "},
      {"Q4_0", 2, "q8_0 q8_0 q4_0 ", "q4_0 q4_0 q4_0 "},
      {"Q4_1", 3, "q8_0 q8_0 q4_1 ", "q4_1 q4_1 q4_1 "},
      {"Q8_0", 7, "q8_0 q8_0 q8_0 ", "q8_0 q8_0 q8_0 "},
      {"Q5_0", 8, "q8_0 q8_0 q5_0 ", "q5_0 q5_0 q5_0 "},
      {"Q5_1", 9, "q8_0 q8_0 q5_1 ", "q5_1 q5_1 q5_1 "},
      {"Q2_K", 10, "q8_0 q8_0 q5_K ", "q3_K q2_K q3_K "},
      {"Q3_K_S", 11, "q8_0 q8_0 q5_K ", "q3_K q3_K q3_K "},
      {"Q3_K_M", 12, "q8_0 q8_0 q5_K ", "q5_K q3_K q4_K "},
      {"Q3_K_L", 13, "q8_0 q8_0 q3_K ", "q5_K q3_K q5_K "},
      {"Q4_K_S", 14, "q8_0 q8_0 q5_K ", "q5_K q4_K q4_K "},
      {"Q5_K_S", 16, "q8_0 q8_0 q5_K ", "q5_K q5_K q5_K "},
      {"Q6_K", 18, "q8_0 q8_0 q6_K ", "q6_K q6_K q6_K "},
      {"IQ4_NL", 25, "q8_0 q8_0 q5_K ", "iq4_nl iq4_nl iq4_nl "},
      {"TQ1_0", 36, "q8_0 q8_0 tq1_0 ", "tq1_0 tq1_0 tq1_0 "},
      {"TQ2_0", 37, "q8_0 q8_0 tq2_0 ", "tq2_0 tq2_0 tq2_0 "},
  };
  for (const Row& row : rows) {
    CAPTURE(row.mixture);
    for (const std::uint32_t experts : {8U, 7U}) {
      CAPTURE(experts);
      const Snapshot mixed = quantize_gguf(model(experts), row.mixture).value();
      std::string dtypes;
      for (const char* const path : names) dtypes += std::string(name(mixed.find(path)->dtype())) + ' ';
      CHECK(dtypes == (experts == 8 ? row.eight : row.seven));
      CHECK(*mixed.properties().find("general.file_type") == Value(row.file_type));
    }
  }
}

TEST_CASE("gguf: key-value pairs of every type keep it") {
  const std::vector<std::string> pairs = {
      architecture("arch"),
      pair("a.u8", 0, number(std::uint8_t{200})),
      pair("a.i8", 1, number(std::int8_t{-3})),
      pair("a.u16", 2, number(std::uint16_t{60000})),
      pair("a.i16", 3, number(std::int16_t{-300})),
      pair("a.u32", 4, number(std::uint32_t{4000000000})),
      pair("a.i32", 5, number(std::int32_t{-5})),
      pair("a.i32.positive", 5, number(std::int32_t{5})),
      pair("a.f32", 6, number(std::bit_cast<std::uint32_t>(1e-5F))),
      pair("a.bool", 7, "\1"),
      pair("a.string", 8, text("\xff not UTF-8, with \0 zero"s)),
      pair("a.u64", 10, number(std::uint64_t{1} << 63)),
      pair("a.u64.small", 10, number(std::uint64_t{7})),
      pair("a.i64", 11, number(std::int64_t{-1})),
      pair("a.f64", 12, number(std::bit_cast<std::uint64_t>(0.1))),
      pair("a.f64.exact", 12, number(std::bit_cast<std::uint64_t>(0.5))),
      pair("b.u8", 9, gguf::array(0, 3, "\1\2\xff"s)),
      pair("b.i8", 9, gguf::array(1, 2, "\1\xff"s)),
      pair("b.u16", 9, gguf::array(2, 1, "\1\0"s)),
      pair("b.i16", 9, gguf::array(3, 1, "\1\0"s)),
      pair("b.u32", 9, gguf::array(4, 1, "\1\0\0\0"s)),
      pair("b.i32", 9, gguf::array(5, 2, "\1\0\0\0\xff\xff\xff\xff"s)),
      pair("b.f32", 9, gguf::array(6, 1, number(std::bit_cast<std::uint32_t>(0.25F)))),
      pair("b.bool", 9, gguf::array(7, 3, "\0\1\1"s)),
      pair("b.string", 9, gguf::array(8, 2, text("") + text("b"))),
      pair("b.u64", 9, gguf::array(10, 1, number(std::uint64_t{1}))),
      pair("b.i64", 9, gguf::array(11, 1, number(std::uint64_t{1}))),
      pair("b.f64", 9, gguf::array(12, 1, number(std::bit_cast<std::uint64_t>(0.25)))),
      pair("b.none", 9, gguf::array(8, 0, "")),
      pair("b.no numbers", 9, gguf::array(6, 0, "")),
      pair("Any key, \xc3\xa9", 4, number(std::uint32_t{1})),
  };
  const std::string bytes =
      gguf::file(pairs, {tensor("w", {1}, 0, 0)}, number(std::uint32_t{0}) + std::string(28, '\0'));
  const auto opened = gguf::open(bytes);
  REQUIRE_MESSAGE(opened, why(opened));
  const Value& properties = opened->properties();
  const auto integer = [](std::int64_t n) { return Value(n); };
  CHECK(*properties.find("a.u8") == integer(200));
  CHECK(*properties.find("a.i8") == integer(-3));
  CHECK(*properties.find("a.u64") == Value(std::uint64_t{1} << 63));
  CHECK(*properties.find("a.f32") == Value(static_cast<double>(1e-5F)));
  CHECK(*properties.find("a.f64") == Value(0.1));
  CHECK(*properties.find("a.bool") == Value(true));
  CHECK(*properties.find("b.u8") == Value(Value::Bytes{std::byte{1}, std::byte{2}, std::byte{255}}));
  CHECK(*properties.find("b.i32") == Value(Value::List{integer(1), integer(-1)}));
  CHECK(*properties.find("b.string") == Value(Value::List{Value(""), Value("b")}));
  CHECK(opened->metadata().size() == 2);
  CHECK(opened->metadata().at("a.string").size() == 24);
  CHECK(saved_text(*opened) == bytes);
  // New names keep them.
  const std::vector<Rename> rules = {{"^w$", "v"}};
  const auto renamed = rename(*opened, rules).value();
  std::string wanted = bytes;
  wanted[wanted.find(text("w")) + 8] = 'v';
  CHECK(saved_text(renamed) == wanted);
  // Other formats keep them in the metadata, if they have some.
  std::vector<std::string> utf8 = pairs;
  std::replace(utf8.begin(), utf8.end(), pairs[10], pair("a.string", 8, text("é")));
  wanted = gguf::file(utf8, {tensor("v", {1}, 0, 0)}, std::string(32, '\0'));
  const Snapshot model = gguf::open(wanted).value();
  const TempDir dir;
  std::size_t with_metadata = 0;
  for (const Format* const format : formats()) {
    if (!format->writes() || format->capabilities().properties || !format->capabilities().metadata) continue;
    if (format->name().starts_with("burn-bin")) continue;  // needs a layout
    CAPTURE(format->name());
    const std::string path = dir / ("m" + std::to_string(++with_metadata) + std::string(format->extension()));
    SaveOptions options = quick();
    options.format = format;
    const auto report = save(model, path, options);
    REQUIRE_MESSAGE(report, why(report));
    CHECK(report->count(Report::What::lost) == 0);
    const auto back = open(*format, path);
    REQUIRE_MESSAGE(back, why(back));
    auto metadata = model.metadata();
    const bool hub = format->name() == "hub";  // each of its files says this, for transformers
    if (hub) metadata.emplace("format", "pt");
    CHECK(back->metadata() == metadata);
    CHECK(back->properties() == model.properties());
    if (hub) continue;
    if (const auto* const checkpoints = format->checkpoints()) {
      const auto whole = open_checkpoint(*checkpoints, path);
      REQUIRE_MESSAGE(whole, why(whole));
      CHECK(whole->parameters.metadata() == model.metadata());
      CHECK(whole->parameters.properties() == model.properties());
    }
    CHECK(saved_text(filter(*back, {.include = {"v"}}).value()) == wanted);
  }
  CHECK(with_metadata > 8);
}

TEST_CASE("gguf: properties are a loss where a format has no metadata") {
  struct Module {
    std::vector<float> weight{1, 2};
  };
  const Module module;
  const Snapshot model =
      with_properties(snapshot_of(module).value(), Value(Value::Map{{"rate", Value(0.5)}, {"layers", Value(true)}}));
  const TempDir dir;
  std::size_t without_metadata = 0;
  for (const Format* const format : formats()) {
    const Capabilities& can = format->capabilities();
    if (!format->writes() || can.properties || can.metadata) continue;
    CAPTURE(format->name());
    for (const bool dry : {false, true}) {
      SaveOptions options = quick();
      options.format = format;
      options.dry_run = dry;
      const std::string path = dir / ("m" + std::to_string(++without_metadata) + std::string(format->extension()));
      const auto refused = save(model, path, options);
      REQUIRE(!refused);
      CHECK(refused.error().code() == Errc::not_representable);
      CHECK(refused.error().found() == "the properties rate, layers");
      CHECK(refused.error().hint().find("allow_loss") != std::string_view::npos);
      options.allow_loss = true;
      const auto report = save(model, path, options);
      REQUIRE_MESSAGE(report, why(report));
      CHECK(report->count(Report::What::lost) >= 1);
    }
  }
  CHECK(without_metadata > 4);
}

TEST_CASE("properties: long ones open again, compressed or not") {
  struct Module {
    std::vector<float> weight{1, 2};
  };
  const Module module;
  const Value zeros(Value::List(300'000, Value(std::int64_t{0})));
  const Snapshot model = with_properties(snapshot_of(module).value(), Value(Value::Map{{"zeros", zeros}}));
  const TempDir dir;
  for (const char* const name : {"m.stele", "m.json", "m.json.gz", "m.json.zst", "m.onnx"}) {
    CAPTURE(name);
    REQUIRE(save(model, dir / name, quick()));
    const auto back = open(dir / name);
    REQUIRE_MESSAGE(back, why(back));
    CHECK(*back->properties().find("zeros") == zeros);
  }
}

TEST_CASE("properties: the text in the metadata is checked, and bounded") {
  const auto opened = [](const std::string& properties, const std::map<std::string, std::string>& more = {}) {
    SaveOptions options;
    options.metadata = more;
    options.metadata["stele.properties"] = properties;
    const std::vector<float> weight{1, 2};
    // Written without the checks of a save.
    BufferSink sink;
    const Snapshot snapshot = with_metadata(snapshot_of(weight).value(), options.metadata);
    REQUIRE(SteleFormat().write(snapshot, sink, options));
    return BinaryRecorder<>().open(sink.take());
  };
  const auto good = opened(R"({"values":{"a":1,"b":"x"},"types":{"a":"u8"}})", {{"b", "y"}});
  REQUIRE_MESSAGE(good, why(good));
  CHECK(good->properties() == Value(Value::Map{{"a", Value(std::int64_t{1})}, {"b", Value("y")}}));
  CHECK(good->metadata() == std::map<std::string, std::string>{{"b", "y"}});
  for (const char* const bad : {"", "1", "{}", "[]", R"({"values":[]})", R"({"values":1})", R"({"values":{"a":1})",
                                R"({"values":{"a":1,"a":2}})", R"({"values":{},"types":{"a":1}})",
                                R"({"values":{},"types":{"a":"u8","a":"u8"}})",
                                R"({"values":{}} )"
                                "x"}) {
    CAPTURE(bad);
    const auto refused = opened(bad);
    REQUIRE(!refused);
    CHECK(refused.error().path() == "stele.properties");
  }
  CHECK(code_of(opened(R"({"more":1})")) == Errc::unsupported);
  // A save does not write such a text as it is.
  const std::vector<float> weight{1, 2};
  SaveOptions options;
  options.metadata["stele.properties"] = "x";
  CHECK_FALSE(saved(BinaryRecorder<>(), snapshot_of(weight).value(), options));
}

TEST_CASE("gguf: properties of a program, and metadata beside them") {
  const std::vector<float> weight{1, 2};
  const Snapshot plain = snapshot_of(weight).value();
  const auto with = [&](Value value) {
    return with_properties(plain, Value(Value::Map{{"general.architecture", Value("llama")}, {"k", std::move(value)}}));
  };
  const auto type_of = [&](Value value) {
    const std::string bytes = saved_text(with(std::move(value)));
    const std::size_t at = bytes.find(text("k")) + 9;
    const auto code = static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at]));
    return code != 9 ? std::to_string(code) : "9 of " + std::to_string(static_cast<unsigned>(bytes[at + 4]));
  };
  CHECK(type_of(Value(std::int64_t{7})) == "4");
  CHECK(type_of(Value(std::int64_t{-7})) == "5");
  CHECK(type_of(Value(std::int64_t{1} << 40)) == "10");
  CHECK(type_of(Value(-(std::int64_t{1} << 40))) == "11");
  CHECK(type_of(Value(0.5)) == "6");
  CHECK(type_of(Value(std::numeric_limits<double>::infinity())) == "6");
  CHECK(type_of(Value(0.1)) == "12");
  CHECK(type_of(Value(1e300)) == "12");
  CHECK(type_of(Value(true)) == "7");
  CHECK(type_of(Value("text")) == "8");
  CHECK(type_of(Value(Value::List{Value(std::int64_t{1}), Value(std::int64_t{-1})})) == "9 of 5");
  CHECK(type_of(Value(Value::List{Value(std::int64_t{3'000'000'000})})) == "9 of 4");
  CHECK(type_of(Value(Value::List{Value("a")})) == "9 of 8");
  CHECK(type_of(Value(Value::List{Value(0.5), Value(0.1)})) == "9 of 12");
  CHECK(type_of(Value(Value::Bytes{std::byte{1}})) == "9 of 0");
  for (const Value& bad : {Value(), Value(Value::Map()), Value(Value::List{Value(true), Value("a")}),
                           Value(Value::List{Value(Value::List())})}) {
    const auto refused = saved(GgufRecorder<>(), with(bad));
    REQUIRE(!refused);
    CHECK(refused.error().code() == Errc::not_representable);
    SaveOptions lossy;
    lossy.allow_loss = true;
    CHECK(saved(GgufRecorder<>(), with(bad), lossy));
  }
  // Properties that would change how the file is read are not written.
  for (const auto& pair : Value::Map{{"split.count", Value(std::int64_t{3})},
                                     {"general.alignment", Value("64")},
                                     {"general.alignment", Value(std::int64_t{24})}}) {
    CAPTURE(pair.first);
    const Snapshot bad = with_properties(plain, Value(Value::Map{pair}));
    CHECK(code_of(saved(GgufRecorder<>(), bad)) == Errc::not_representable);
    SaveOptions lossy;
    lossy.allow_loss = true;
    BufferSink sink;
    const Report report = GgufRecorder<>().save(bad, sink, lossy).value();
    CHECK(report.count(Report::What::lost) == 1);
    CHECK(GgufRecorder<>().open(sink.take()).value().properties().find(pair.first) == nullptr);
  }
  for (const char* const key : {"split.count", "general.alignment", "stele"}) {
    SaveOptions options;
    options.metadata = {{key, R"({"version":1})"}};
    const auto refused = saved(GgufRecorder<>(), plain, options);
    CHECK(code_of(refused) == Errc::not_representable);
    CHECK(refused.error().path() == key);
  }
  {
    const Snapshot wide = with_properties(plain, Value(Value::Map{{"general.alignment", Value(std::int64_t{128})}}));
    CHECK(saved_text(wide).size() % 128 == 0);
    const Snapshot kept = BinaryRecorder<>().open(saved(BinaryRecorder<>(), wide).value()).value();
    CHECK(saved_text(kept) == saved_text(wide));
  }
  {
    // No key is written twice: metadata replaces the pairs that files with blocks get.
    const Tensor<float, 2> matrix = Tensor<float, 2>::filled({2, 32}, 1);
    SaveOptions options;
    options.metadata = {{"general.file_type", "x"}, {"general.quantization_version", "y"}};
    const auto bytes = saved(GgufRecorder<GgufPrecision<ggml::q8_0>>(), matrix, options);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto opened = GgufRecorder<>().open(*bytes);
    REQUIRE_MESSAGE(opened, why(opened));
    CHECK(opened->metadata().at("general.file_type") == "x");
  }
  // A string of SaveOptions replaces a property; other strings are added.
  SaveOptions options;
  options.metadata = {{"k", "new"}, {"author", "x"}};
  const auto bytes = saved(GgufRecorder<>(), with(Value("old")), options);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const Snapshot again = GgufRecorder<>().open(*bytes).value();
  CHECK(*again.properties().find("k") == Value("new"));
  CHECK(again.metadata().at("author") == "x");
  CHECK(again.metadata().at("general.architecture") == "llama");
  // GGUF requires an architecture; a model without one gets it back without one.
  CHECK(GgufRecorder<>().open(*saved(GgufRecorder<>(), plain)).value().metadata().empty());
}

// What ggml refuses is refused, too (gguf.md, section 6); what it overlooks is as well.
TEST_CASE("gguf: malformed files") {
  const std::string zeros32(32, '\0');
  const std::string f32 = tensor("w", {8}, 0, 0);
  const auto plain = [&](std::string entry, std::string data) {
    return gguf::file({architecture()}, {std::move(entry)}, data);
  };
  const auto meta = [&](std::string p) { return gguf::file({architecture(), std::move(p)}, {f32}, zeros32); };
  const auto number_of = [](const char* what, std::uint32_t value) { return pair("split."s + what, 4, number(value)); };
  const auto split = [&](std::uint32_t count, std::uint32_t at) {
    return gguf::file({number_of("count", count), number_of("no", at), number_of("tensors.count", 1)}, {f32}, zeros32);
  };
  struct Case {
    const char* what;
    std::string bytes;
    Errc code;  // none: accepted
  };
  const std::string good = plain(f32, zeros32);
  const std::uint64_t huge = std::uint64_t{1} << 32;
  const std::vector<Case> cases = {
      {"good", good, Errc::none},
      {"no padding after the last tensor, as MLX", plain(tensor("w", {4}, 0, 0), std::string(16, '\0')), Errc::none},
      {"a part of the last padding", plain(tensor("w", {4}, 0, 0), std::string(20, '\0')), Errc::none},
      {"no padding after the first tensor",
       gguf::file({}, {tensor("w", {4}, 0, 0), tensor("v", {8}, 0, 32)}, std::string(16, '\0')), Errc::truncated},
      {"a byte less than the last tensor", plain(tensor("w", {4}, 0, 0), std::string(15, '\0')), Errc::truncated},
      {"trailing bytes", good + "x", Errc::malformed},
      {"a whole more block", good + zeros32, Errc::malformed},
      {"truncated", good.substr(0, good.size() - 1), Errc::truncated},
      {"truncated in the entries", good.substr(0, 70), Errc::truncated},
      {"gap", gguf::file({}, {f32, tensor("v", {8}, 0, 64)}, zeros32 + zeros32 + zeros32), Errc::malformed},
      {"wrong order", gguf::file({}, {tensor("w", {8}, 0, 32), tensor("v", {8}, 0, 0)}, zeros32 + zeros32),
       Errc::malformed},
      {"two at one offset", gguf::file({}, {f32, tensor("v", {8}, 0, 0)}, zeros32), Errc::malformed},
      {"alignment 64",
       gguf::file({pair("general.alignment", 4, number(std::uint32_t{64}))}, {f32}, zeros32 + zeros32, 3, 64),
       Errc::none},
      {"alignment 24", meta(pair("general.alignment", 4, number(std::uint32_t{24}))), Errc::malformed},
      {"alignment 1", gguf::file({pair("general.alignment", 4, number(std::uint32_t{1}))}, {f32}, zeros32, 3, 1),
       Errc::malformed},
      {"alignment 0", meta(pair("general.alignment", 4, number(std::uint32_t{0}))), Errc::malformed},
      {"alignment as text", meta(pair("general.alignment", 8, text("32"))), Errc::malformed},
      {"duplicate key", meta(architecture()), Errc::duplicate},
      {"duplicate tensor", gguf::file({}, {f32, tensor("w", {8}, 0, 32)}, zeros32 + zeros32), Errc::duplicate},
      {"name of 63 bytes", plain(tensor(std::string(63, 'n'), {8}, 0, 0), zeros32), Errc::none},
      {"name of 64 bytes", plain(tensor(std::string(64, 'n'), {8}, 0, 0), zeros32), Errc::none},
      {"name of 200 bytes", plain(tensor(std::string(200, 'n'), {8}, 0, 0), zeros32), Errc::none},
      {"5 dimensions", plain(tensor("w", {2, 2, 2, 1, 1}, 0, 0), zeros32), Errc::malformed},
      {"2^32-1 dimensions", good.substr(0, good.find(text("w")) + 9) + "\xff\xff\xff\xff" + std::string(64, '\0'),
       Errc::malformed},
      {"no dimension", plain(tensor("w", {}, 0, 0), zeros32), Errc::none},
      {"an extent of 0", plain(tensor("w", {0, 4}, 0, 0), ""), Errc::none},
      {"a negative extent", plain(tensor("w", {~std::uint64_t{0}}, 0, 0), zeros32), Errc::malformed},
      {"a product of 2^64", plain(tensor("w", {huge, huge}, 0, 0), ""), Errc::malformed},
      {"a product that wraps to 4", plain(tensor("w", {huge, huge, 1, 4}, 0, 0), zeros32), Errc::malformed},
      {"an overflow beside an extent of 0", plain(tensor("w", {huge, 0, huge}, 0, 0), ""), Errc::malformed},
      {"padding that wraps", plain(tensor("w", {(std::uint64_t{1} << 62) - 1}, 0, 0), ""), Errc::malformed},
      {"q8_0 of 33", plain(tensor("w", {33}, 8, 0), zeros32 + zeros32), Errc::malformed},
      {"q8_0 of no dimension", plain(tensor("w", {}, 8, 0), zeros32 + zeros32), Errc::malformed},
      {"an array of arrays", meta(pair("k", 9, gguf::array(9, 1, gguf::array(4, 0, "")))), Errc::unsupported},
      {"a key's unknown type", meta(pair("k", 13, "")), Errc::unsupported},
      {"an array's unknown type", meta(pair("k", 9, gguf::array(13, 1, ""))), Errc::unsupported},
      {"a bool of 2", meta(pair("k", 7, "\2")), Errc::malformed},
      {"a bool of 2 in an array", meta(pair("k", 9, gguf::array(7, 1, "\2"))), Errc::malformed},
      {"an empty key", meta(pair("", 7, "\1")), Errc::malformed},
      {"a key that is not UTF-8", meta(pair("\xff", 7, "\1")), Errc::malformed},
      {"a key with NUL", meta(pair("a\0b"s, 7, "\1")), Errc::malformed},
      {"a key of 65535 bytes", meta(pair(std::string(65535, 'k'), 7, "\1")), Errc::none},
      {"a key of 65536 bytes", meta(pair(std::string(65536, 'k'), 7, "\1")), Errc::malformed},
      {"a long string", meta(pair("k", 8, text(std::string(1 << 20, 's')))), Errc::none},
      {"a string beyond the file", meta(pair("k", 8, number(std::uint64_t{1} << 40))), Errc::truncated},
      {"a string of 2^64-1", meta(pair("k", 8, number(~std::uint64_t{0}))), Errc::truncated},
      {"an array beyond the file", meta(pair("k", 9, gguf::array(0, std::uint64_t{1} << 40, ""))), Errc::truncated},
      {"an array whose size wraps", meta(pair("k", 9, gguf::array(10, std::uint64_t{1} << 61, ""))), Errc::truncated},
      {"strings beyond the file", meta(pair("k", 9, gguf::array(8, std::uint64_t{1} << 60, ""))), Errc::truncated},
      {"an empty tensor name", plain(tensor("", {8}, 0, 0), zeros32), Errc::none},
      {"a tensor name with NUL", plain(tensor("a\0"s, {8}, 0, 0), zeros32), Errc::malformed},
      {"a tensor name that is not UTF-8", plain(tensor("\xc0\x80", {8}, 0, 0), zeros32), Errc::malformed},
      {"2^64-1 tensors", "GGUF\3\0\0\0"s + std::string(8, '\xff') + std::string(8, '\0'), Errc::truncated},
      {"2^60 pairs", "GGUF\3\0\0\0"s + std::string(8, '\0') + number(std::uint64_t{1} << 60), Errc::truncated},
      {"version 1", gguf::file({}, {}, "", 1), Errc::unsupported},
      {"version 2", gguf::file({architecture()}, {f32}, zeros32, 2), Errc::none},
      {"version 4", gguf::file({}, {}, "", 4), Errc::unsupported},
      {"big-endian", gguf::file({}, {}, "", 0x03000000), Errc::unsupported},
      {"another magic", "GGML" + good.substr(4), Errc::bad_magic},
      {"no bytes", "", Errc::truncated},
      {"only the magic", "GGUF", Errc::truncated},
      {"no tensors", gguf::file({architecture()}, {}, ""), Errc::none},
      {"no tensors, and bytes", gguf::file({architecture()}, {}, std::string(100, '\0')), Errc::malformed},
      {"the smallest pair, alone", gguf::file({pair("k", 7, "\1")}, {}, ""), Errc::none},
      {"a pair less a byte, alone", gguf::file({pair("k", 7, "")}, {}, ""), Errc::truncated},
      {"a split without its number", meta(number_of("count", 2)), Errc::malformed},
      {"a split without its tensors", gguf::file({number_of("count", 2), number_of("no", 0)}, {f32}, zeros32),
       Errc::malformed},
      {"a split of no files", split(0, 0), Errc::malformed},
      {"a split whose number is its count", split(2, 2), Errc::malformed},
      {"a split of 65536 files", split(65536, 0), Errc::malformed},
      {"the last of 65535 files, without the others", split(65535, 65534), Errc::unsupported},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    const auto opened = gguf::open(c.bytes);
    CHECK_MESSAGE(name(code_of(opened)) == name(c.code), why(opened));
    if (!opened) {
      CHECK(opened.error().file() == "memory");
      continue;
    }
    // What is accepted can be written again, and is then the same.
    const auto again = saved(GgufRecorder<>(Recorder<GgufFormat>(GgufFormat(1000))), *opened);
    REQUIRE_MESSAGE(again, why(again));
    const auto reopened = gguf::open(std::string(text_of(again->span())));
    REQUIRE_MESSAGE(reopened, why(reopened));
    CHECK(reopened->properties() == opened->properties());
  }
}

TEST_CASE("gguf: tensors of an unknown type are unreadable, and all others are read") {
  const std::vector<std::string> tensors = {tensor("new", {8, 2}, 99, 0), tensor("w", {8}, 0, 64),
                                            tensor("last", {3, 3}, 4, 96)};
  const std::string bytes = gguf::file({architecture()}, tensors, std::string(64, 'n') + std::string(32, 'w') + "tail");
  const auto opened = gguf::open(bytes);
  REQUIRE_MESSAGE(opened, why(opened));
  REQUIRE(opened->leaf_count() == 3);
  for (const auto& [at, text, reason] : {std::tuple(0, std::string(64, 'n'), "elements of ggml's type 99"),
                                         std::tuple(2, "tail"s, "elements of ggml's type 4")}) {
    const LeafView leaf = opened->leaf(static_cast<std::size_t>(at));
    CHECK(leaf.dtype() == DType::opaque);
    CHECK(content(leaf).value() == text);
    CHECK(leaf.annotations()->at("unreadable") == Value(reason));
  }
  CHECK(content(opened->leaf(1)).value() == std::string(32, 'w'));
  // .stele keeps them; GGUF cannot, as their shapes are unknown.
  const auto kept = BinaryRecorder<>().open(saved(BinaryRecorder<>(), *opened).value()).value();
  CHECK(kept.leaf(0).annotations()->at("unreadable") == Value("elements of ggml's type 99"));
  CHECK(code_of(saved(GgufRecorder<>(), *opened)) == Errc::not_representable);
  CHECK(saved_text(filter(*opened, {.include = {"w"}}).value()) ==
        gguf::file({architecture()}, {tensor("w", {8}, 0, 0)}, std::string(32, 'w')));
  // Their place must make sense: after the tensor before, and inside the file.
  const auto broken = [&](const std::string& second, const std::string& data) {
    return code_of(gguf::open(gguf::file({architecture()}, {tensors[0], second}, data)));
  };
  CHECK(broken(tensor("w", {8}, 0, 40), std::string(96, '\0')) == Errc::malformed);
  CHECK(broken(tensor("w", {8}, 0, std::uint64_t{1} << 63), std::string(96, '\0')) == Errc::truncated);
  CHECK(broken(tensor("w", {8}, 0, 64), std::string(64, '\0')) == Errc::truncated);
}

TEST_CASE("gguf: each byte of the pairs raises the budget once") {
  // Long strings take about their bytes, so that what is left shows what was admitted.
  std::string strings, pairs;
  for (int i = 0; i < 100; ++i) strings += text(std::string(1000, 's'));
  pairs += pair("list", 9, gguf::array(8, 100, strings)) + pair("text", 8, text(std::string(100'000, 't')));
  pairs += pair("numbers", 9, gguf::array(4, 1000, std::string(4000, '\1'))) +
           pair("bytes", 9, gguf::array(0, 9, "123456789"));
  detail::IndexBudget memory(Limits(), 0);
  const std::uint64_t before = memory.left();
  detail::Cursor in(gguf::source(pairs));
  detail::Properties properties;
  REQUIRE(detail::gguf::read_pairs(in, 4, properties, memory));
  const std::uint64_t admitted = detail::index_rate::index * pairs.size(), taken = 40 * 1101 + pairs.size() + 10'000;
  CHECK(memory.left() < before + admitted);
  CHECK(memory.left() > before + admitted - taken);
}

TEST_CASE("gguf: every cut and every changed byte is opened or refused") {
  const std::string bytes = gguf::file(
      {architecture(), pair("k", 9, gguf::array(8, 2, text("a") + text("bc"))), pair("n", 12, std::string(8, '\1'))},
      {tensor("w", {8}, 0, 0), tensor("v", {32, 2}, 8, 32)}, std::string(32 + 96, '\1'));
  REQUIRE(gguf::open(bytes));
  const std::size_t padding = 96 - 2 * 34;  // after the last tensor, whose two rows are one block each
  for (std::size_t n = 0; n < bytes.size(); ++n)
    CHECK(gguf::open(bytes.substr(0, n)).has_value() == (n >= bytes.size() - padding));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      const auto opened = gguf::open(damaged);
      for (std::size_t k = 0; opened && k < opened->leaf_count(); ++k) CHECK(content(opened->leaf(k)));
    }
  }
}

TEST_CASE("gguf: split sets") {
  const std::string zeros32(32, '\0');
  const auto split = [](std::uint16_t number_, std::uint16_t count, std::int32_t tensors) {
    return std::vector<std::string>{pair("split.no", 2, number(number_)), pair("split.count", 2, number(count)),
                                    pair("split.tensors.count", 5, number(tensors))};
  };
  const auto part = [&](std::vector<std::string> pairs, std::vector<std::string> tensors) {
    std::string data;
    for (std::size_t i = 0; i < tensors.size(); ++i) data += std::string(32, static_cast<char>('a' + i));
    return gguf::file(pairs, tensors, data);
  };
  auto first = split(0, 3, 3);
  first.push_back(architecture());
  first.push_back(pair("llama.block_count", 4, number(std::uint32_t{2})));
  const auto set = [&](std::vector<std::string> files) {
    auto bundle = memory_bundle();
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].empty()) continue;
      auto sink = bundle->create("m-0000" + std::to_string(i + 1) + "-of-00003.gguf").value();
      REQUIRE(sink->write(bytes_of(files[i])));
      REQUIRE(sink->commit());
    }
    return bundle;
  };
  const std::string a = part(first, {});
  const std::string b = part(split(1, 3, 3), {tensor("w", {8}, 0, 0), tensor("v", {8}, 0, 32)});
  const std::string c = part(split(2, 3, 3), {tensor("u", {8}, 0, 0)});
  const auto open_set = [](const std::shared_ptr<Bundle>& bundle, int from = 1) {
    return GgufRecorder<>().open(bundle->open("m-0000" + std::to_string(from) + "-of-00003.gguf").value());
  };
  for (const int from : {1, 2, 3}) {
    const auto opened = open_set(set({a, b, c}), from);
    REQUIRE_MESSAGE(opened, why(opened));
    REQUIRE(opened->leaf_count() == 3);
    CHECK(opened->leaf(1).path() == "v");
    CHECK(content(opened->leaf(1)).value() == std::string(32, 'b'));
    CHECK(content(opened->leaf(2)).value() == std::string(32, 'a'));
    CHECK(opened->properties().find("split.count") == nullptr);
    CHECK(*opened->properties().find("llama.block_count") == Value(std::int64_t{2}));
    // One file is written.
    CHECK(gguf::open(saved_text(*opened)).value().leaf_count() == 3);
  }
  CHECK(code_of(open_set(set({a, "", c}))) == Errc::not_found);
  CHECK(code_of(open_set(set({a, c, b}))) == Errc::malformed);
  CHECK(code_of(open_set(set({a, b, part(split(2, 4, 3), {tensor("u", {8}, 0, 0)})}))) == Errc::malformed);
  CHECK(code_of(open_set(set({a, b, part(split(2, 3, 4), {tensor("u", {8}, 0, 0)})}))) == Errc::malformed);
  CHECK(code_of(open_set(set({a, b, part(split(2, 3, 3), {})}))) == Errc::malformed);
  CHECK(code_of(open_set(set({a, b, part(split(2, 3, 3), {tensor("w", {8}, 0, 0)})}))) == Errc::duplicate);
  auto later = split(2, 3, 3);
  later.push_back(architecture("other"));
  CHECK(code_of(open_set(set({a, b, part(later, {tensor("u", {8}, 0, 0)})}))) == Errc::malformed);
  later.back() = pair("more", 7, "\1");
  CHECK(*open_set(set({a, b, part(later, {tensor("u", {8}, 0, 0)})})).value().properties().find("more") == Value(true));
  // Without split.count, the file is whole, and the other keys of a set are ignored.
  for (const std::string& ignored : {pair("split.no", 2, number(std::uint16_t{0})), pair("split.no", 8, text("x"))}) {
    const std::string whole = gguf::file({ignored}, {tensor("w", {8}, 0, 0)}, zeros32);
    CHECK(gguf::open(saved_text(gguf::open(whole).value())).value().properties() == Value(Value::Map()));
  }
  // By another name, or alone in memory, the other files cannot be found.
  auto renamed = memory_bundle();
  auto sink = renamed->create("m.gguf").value();
  REQUIRE(sink->write(bytes_of(a)));
  REQUIRE(sink->commit());
  CHECK(code_of(GgufRecorder<>().open(renamed->open("m.gguf").value())) == Errc::malformed);
  CHECK(code_of(gguf::open(a)) == Errc::unsupported);
  const TempDir dir;
  for (std::size_t i = 0; i < 3; ++i)
    write_text(dir / ("x-0000" + std::to_string(i + 1) + "-of-00003.gguf"), i == 0 ? a : i == 1 ? b : c);
  CHECK(stele::open(dir / "x-00002-of-00003.gguf").value().leaf_count() == 3);
}

namespace {

struct Long {
  std::vector<float> a_name_that_is_longer_than_the_sixty_three_bytes_of_llama_cpp_x86{1};
  STELE_MODULE(Long, a_name_that_is_longer_than_the_sixty_three_bytes_of_llama_cpp_x86)
};

}  // namespace

// ComfyUI-GGUF's converter joins the rows of tensors whose rows are not whole blocks.
TEST_CASE("gguf: original shapes of ComfyUI-GGUF") {
  const auto shape = [](const std::vector<std::int32_t>& extents) {
    std::string elements;
    for (const std::int32_t e : extents) elements += number(e);
    return pair("comfy.gguf.orig_shape.w", 9, gguf::array(5, extents.size(), elements));
  };
  const auto file = [](const std::string& key, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                       std::size_t bytes) {
    return gguf::file({architecture("flux"), key}, {tensor("w", extents, type, 0)}, std::string(bytes, '\1'));
  };
  struct Case {
    const char* what;
    std::string bytes;
    std::vector<Extent> shape;  // empty: malformed
  };
  const std::vector<Case> cases = {
      {"floats", file(shape({6, 64}), {192, 2}, 0, 1536), {6, 64}},
      {"blocks that fit the rows", file(shape({8, 64}), {256, 2}, 8, 544), {8, 64}},
      {"blocks across rows", file(shape({16, 16, 2}), {256, 2}, 8, 544), {16, 16, 2}},
      {"blocks of 256 across rows", file(shape({2, 128}), {256, 1}, 12, 160), {2, 128}},
      {"five axes", file(shape({2, 2, 2, 2, 2}), {32}, 0, 128), {2, 2, 2, 2, 2}},
      {"another number of elements", file(shape({6, 65}), {192, 2}, 0, 1536), {}},
      {"an overflow", file(shape({0x7fffffff, 0x7fffffff, 0x7fffffff}), {192, 2}, 0, 1536), {}},
      {"a negative extent", file(shape({-6, -64}), {192, 2}, 0, 1536), {}},
      {"no list", file(pair("comfy.gguf.orig_shape.w", 8, text("6,64")), {192, 2}, 0, 1536), {}},
      {"another tensor's",
       file(pair("comfy.gguf.orig_shape.v", 9, gguf::array(5, 0, "")), {192, 2}, 0, 1536),
       {2, 192}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    const auto opened = gguf::open(c.bytes);
    if (c.shape.empty()) {
      REQUIRE(!opened);
      CHECK(opened.error().code() == Errc::malformed);
      CHECK(opened.error().path() == "comfy.gguf.orig_shape.w");
      continue;
    }
    REQUIRE_MESSAGE(opened, why(opened));
    const auto extents = opened->leaf(0).shape();
    CHECK(std::vector<Extent>(extents.begin(), extents.end()) == c.shape);
    if (c.shape.size() > 4) continue;  // more than a save stores
    const auto again = saved(GgufRecorder<>(), *opened);
    REQUIRE_MESSAGE(again, why(again));
    const auto reopened = gguf::open(std::string(text_of(again->span())));
    REQUIRE_MESSAGE(reopened, why(reopened));
    const auto kept = reopened->leaf(0).shape();
    CHECK(std::vector<Extent>(kept.begin(), kept.end()) == c.shape);
    CHECK(content(reopened->leaf(0)).value() == content(opened->leaf(0)).value());
  }
  // Without the key, such blocks cannot be stored.
  const Snapshot bare = with_properties(gguf::open(cases[2].bytes).value(), Value::Map());
  const auto refused = saved(GgufRecorder<>(), bare);
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::not_representable);
}

TEST_CASE("gguf: what cannot be stored") {
  const auto refused = [](const Snapshot& snapshot) {
    const auto bytes = saved(GgufRecorder<>(), snapshot);
    REQUIRE(!bytes);
    CHECK(bytes.error().code() == Errc::not_representable);
    return bytes.error();
  };
  const Tensor<std::uint8_t, 1> bytes({2}, {1, 2});
  CHECK(refused(snapshot_of(bytes).value()).found() == "dtype u8");
  const Tensor<float, 5> five({1, 1, 1, 1, 1}, {1});
  CHECK(refused(snapshot_of(five).value()).found() == "rank 5");
  const Long module;
  const Error error = refused(snapshot_of(module).value());
  CHECK(error.found() == "65 bytes");
}

}  // namespace gguf_test
