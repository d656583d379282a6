// Codes and scales of schemes that are not decoded, in the library; tests/command/schemes_test.py has the table of
// schemes. And the schemes whose decoders depend on a configuration, with parts made by hand.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "stele/composite.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/gguf.hpp"
#include "stele/transform.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace undecoded_test {

namespace {

using namespace stele;
using namespace stele_test;

struct EetqLayer {
  Tensor<std::int8_t, 2> weight = Tensor<std::int8_t, 2>({2, 4}, {64, -128, 0, 127, 1, 2, 3, 4});
  std::vector<float> weight_scales{0.5F, 0.25F};
};
struct EetqModel {
  EetqLayer fc;
  Tensor<float, 2> head = Tensor<float, 2>::filled({2, 32}, 3);
};
struct FloatLayer {
  Tensor<float, 2> weight;
  std::vector<float> weight_scales;
};
struct FloatModel {
  FloatLayer fc;
  Tensor<float, 2> head;
};
struct ScalesModule {
  Tensor<float, 1> values = Tensor<float, 1>::filled({2}, 1);
};
struct ModuleLayer {
  Tensor<std::int8_t, 2> weight = Tensor<std::int8_t, 2>::filled({2, 2}, 1);
  ScalesModule weight_scales;
};

/// Tensors with names, dtypes and elements.
class Tensors {
 public:
  Tensors() { builder_.set_flat(); }
  template <class T>
  Tensors& add(std::string_view name, DType dtype, std::vector<Extent> shape, std::vector<T> elements) {
    auto bytes = std::make_shared<std::vector<T>>(std::move(elements));
    static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) {
      return reinterpret_cast<const std::byte*>(static_cast<const std::vector<T>*>(at)->data());
    }};
    builder_.keep(bytes);
    builder_.tensor(builder_.intern(name), dtype, shape, bytes->size() * sizeof(T), {&ops, bytes.get(), 0});
    return *this;
  }
  Snapshot joined(const std::string& config) {
    return good(join_composites(builder_.finish(), config.empty() ? Value() : good(parse_json(config))));
  }

 private:
  SnapshotBuilder builder_;
};

bool is_undecoded(const Snapshot& snapshot, std::string_view path) {
  const auto leaf = snapshot.find(path);
  REQUIRE(leaf);
  return leaf->annotations() != nullptr && leaf->annotations()->contains("undecoded");
}

std::vector<float> floats_of(const Snapshot& snapshot, std::string_view path) {
  const auto leaf = snapshot.find(path);
  REQUIRE(leaf);
  REQUIRE(leaf->dtype() == DType::f32);
  std::vector<float> numbers(leaf->size());
  good(leaf->read(0, std::as_writable_bytes(std::span(numbers))));
  return numbers;
}

// 1, 2, 0.5 and -1 as e4m3.
constexpr std::uint8_t one = 0x38, two = 0x40, half = 0x30, minus = 0xb8;

}  // namespace

TEST_CASE("undecoded: nothing takes codes for numbers, unless asked") {
  const TempDir dir;
  good(stele::save(EetqModel{}, dir / "m.safetensors", quick()));
  good(stele::save(EetqModel{}, dir / "m.stele", quick()));
  for (const char* const name : {"m.safetensors", "m.stele"}) {  // flat and nested names
    CAPTURE(name);
    const Snapshot file = good(stele::open(dir / name));
    REQUIRE(file.notes().size() == 1);
    CHECK(file.notes()[0].find("eetq") != std::string::npos);
    CHECK(is_undecoded(file, "fc.weight"));
    CHECK(is_undecoded(file, "fc.weight_scales"));
    CHECK_FALSE(is_undecoded(file, "head"));
    const auto refused = [](const auto& result, std::string_view path) {
      REQUIRE_FALSE(result);
      CHECK(result.error().code() == Errc::unsupported);
      CHECK(result.error().path().starts_with(path));  // a file may have another order
      CHECK_FALSE(result.error().hint().empty());
    };
    refused(stele::save(file, dir / "m.gguf", quick()), "fc.weight");
    SaveOptions half_precision = quick();
    half_precision.precision = PrecisionSpec{DType::f16};
    refused(stele::save(file, dir / "half.safetensors", half_precision), "fc.weight");
    refused(quantize_weights(file, {.name = "int8"}), "fc.weight");
    refused(quantize(file, {}), "fc.weight_scales");
    // A conversion of the snapshot fails when a tensor is read; other tensors are converted.
    const Snapshot converted = with_precision(file, PrecisionSpec{DType::f16});
    std::vector<std::byte> bytes(4);
    refused(converted.find("fc.weight_scales")->read(0, bytes), "fc.weight_scales");
    good(converted.find("head")->read(0, bytes));
    refused(stele::save(converted, dir / "half.safetensors", quick()), "fc.weight_scales");
    // Fields of the stored dtypes get the parts; others are no place for codes.
    CHECK(good(stele::load<EetqModel>(dir / name)).fc.weight(0, 1) == -128);
    LoadOptions other_kinds;
    other_kinds.convert.allow_kind_change = true;
    const auto floats = stele::load<FloatModel>(dir / name, other_kinds);
    REQUIRE_FALSE(floats);
    CHECK(floats.error().code() == Errc::dtype_mismatch);
    // Copied with rows, without the annotation.
    const Report report = good(stele::save(file, dir / "copy.safetensors", quick()));
    CHECK(report.count(Report::What::quantized) == 2);
    CHECK(report.count(Report::What::lost) == 0);
    // As numbers.
    const Snapshot raw = raw_codes(file);
    CHECK_FALSE(is_undecoded(raw, "fc.weight"));
    CHECK(good(stele::save(raw, dir / "m.gguf", quick())).count(Report::What::quantized) == 0);
    good(stele::save(raw, dir / "half.safetensors", half_precision));
  }
}

TEST_CASE("undecoded: a configuration without codes is a note") {
  const std::string config = R"({"quant_method": "aqlm"})";
  const Snapshot file = Tensors().add<float>("fc.weight", DType::f32, {2, 2}, {1, 2, 3, 4}).joined(config);
  REQUIRE(file.notes().size() == 1);
  CHECK(file.notes()[0].find("aqlm") != std::string::npos);
  CHECK_FALSE(is_undecoded(file, "fc.weight"));
}

TEST_CASE("undecoded: which tensors are codes") {
  struct Row {
    const char* what;
    const char* codes;
    std::vector<Extent> shape;
    const char* other;
    const char* config;
    const char* scheme;  // null: the tensor is no codes
  };
  const Row table[] = {
      {"the names of a scheme", "l.codes", {2, 2}, "l.codebooks", "", "aqlm"},
      {"two elements", "l.codes", {2}, "l.codebooks", "", "aqlm"},
      {"one element", "l.codes", {1}, "l.codebooks", "", nullptr},
      {"a part of another layer", "l.codes", {2, 2}, "k.codebooks", "", nullptr},
      {"a method and no scale", "l.weight", {2, 2}, "l.bias", R"({"quant_method":"new"})", "new"},
      {"a size of groups and no scale", "l.weight", {2, 2}, "l.bias", R"({"group_size":2})", "an unknown scheme"},
      {"neither", "l.weight", {2, 2}, "l.bias", "", nullptr},
  };
  for (const Row& row : table) {
    CAPTURE(row.what);
    const std::size_t size = row.shape.size() == 2 ? 4 : row.shape[0];
    const Snapshot file = Tensors()
                              .add<std::uint8_t>(row.codes, DType::u8, row.shape, std::vector<std::uint8_t>(size, 1))
                              .add<float>(row.other, DType::f32, {2}, {1, 2})
                              .joined(row.config);
    CHECK(file.notes().size() == (row.scheme != nullptr ? 1 : 0));
    REQUIRE(is_undecoded(file, row.codes) == (row.scheme != nullptr));
    if (row.scheme != nullptr) CHECK(file.find(row.codes)->annotations()->at("undecoded") == Value(row.scheme));
  }
  const TempDir dir;  // a module with the name of a part
  good(stele::save(ModuleLayer{}, dir / "m.stele", quick()));
  const Snapshot file = good(stele::open(dir / "m.stele"));
  CHECK(file.notes().empty());
  CHECK_FALSE(is_undecoded(file, "weight"));
}

TEST_CASE("composites: FP8 of Mistral, one scale") {
  const Snapshot file = Tensors()
                            .add<std::uint8_t>("wq.weight", DType::f8_e4m3fn, {2, 2}, {one, two, half, minus})
                            .add<float>("wq.qscale_weight", DType::f32, {}, {0.5F})
                            .add<float>("wq.qscale_act", DType::f32, {}, {0.25F})
                            .joined("");
  CHECK(file.notes().empty());
  CHECK(floats_of(file, "wq.weight") == std::vector<float>{0.5F, 1, 0.25F, -0.5F});
}

TEST_CASE("composites: FP8 experts of FBGEMM have a scale for each column") {
  // The kernels of transformers 5.24 multiply by the transposed matrix: the scales of both are for its rows, although
  // those of down_proj are stored as [E, N, 1].
  for (const std::vector<Extent>& shape : {std::vector<Extent>{1, 1, 2}, std::vector<Extent>{1, 2, 1}}) {
    Tensors parts;
    parts.add<std::uint8_t>("experts.down_proj", DType::f8_e4m3fn, {1, 2, 2}, {one, two, half, minus})
        .add<float>("experts.down_proj_scale", DType::f32, shape, {2, 4});
    const Snapshot file = parts.joined(R"({"quant_method": "fbgemm_fp8"})");
    CHECK(file.notes().empty());
    CHECK(floats_of(file, "experts.down_proj") == std::vector<float>{2, 8, 1, -4});
    Tensors same;
    same.add<std::uint8_t>("experts.down_proj", DType::f8_e4m3fn, {1, 2, 2}, {one, two, half, minus})
        .add<float>("experts.down_proj_scale", DType::f32, shape, {2, 4});
    CHECK(is_undecoded(same.joined(""), "experts.down_proj"));  // another package may mean rows
  }
  struct Row {
    const char* what;
    std::vector<Extent> shape, scales;
    std::vector<float> numbers;
  };
  const Row table[] = {
      {"one row", {1, 1, 2}, {1, 1, 2}, {2, 4}}, {"one column", {1, 2, 1}, {1, 1, 1}, {2, 2}},
      {"no expert", {0, 2, 2}, {0, 1, 2}, {}},   {"no rows", {1, 0, 2}, {1, 1, 2}, {}},
      {"no columns", {1, 2, 0}, {1, 1, 0}, {}},
  };
  for (const Row& row : table) {
    CAPTURE(row.what);
    const std::size_t scales = static_cast<std::size_t>(row.scales[0] * row.scales[1] * row.scales[2]);
    const Snapshot file = Tensors()
                              .add<std::uint8_t>("experts.down_proj", DType::f8_e4m3fn, row.shape,
                                                 std::vector<std::uint8_t>(row.numbers.size(), one))
                              .add<float>("experts.down_proj_scale", DType::f32, row.scales,
                                          scales == 2 ? std::vector<float>{2, 4} : std::vector<float>(scales, 2))
                              .joined(R"({"quant_method": "fbgemm_fp8"})");
    if (!row.numbers.empty()) {
      CHECK(floats_of(file, "experts.down_proj") == row.numbers);
    } else {
      CHECK(file.find("experts.down_proj")->dtype() == DType::f8_e4m3fn);  // without elements, nothing is decoded
    }
  }
}

TEST_CASE("composites: factors of the input that do not fit keep the parts") {
  struct Row {
    const char* name;
    std::vector<Extent> shape;
    const char* why;
  };
  const Row rows[] = {{"fc.pre_quant_scale", {2}, ""},
                      {"fc.pre_quant_scale", {1, 2}, ""},
                      {"fc.pre_quant_scale", {3}, "shape"},
                      {"fc.pre_quant_scale", {2, 2}, "shape"},
                      {"fc.svdquant_lora_a", {1, 2}, "low-rank"}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const auto count = static_cast<std::size_t>(*element_count(row.shape));
    const Snapshot file = Tensors()
                              .add<std::uint8_t>("fc.weight", DType::f8_e4m3fn, {2, 2}, {one, two, half, minus})
                              .add<float>("fc.weight_scale", DType::f32, {}, {2})
                              .add<float>(row.name, DType::f32, row.shape, std::vector<float>(count, 3))
                              .joined("");
    if (*row.why == '\0') {
      CHECK(file.notes().empty());
      CHECK(file.leaf_count() == 1);
      CHECK(floats_of(file, "fc.weight") == std::vector<float>{6, 12, 3, -6});
      CHECK(good(split_composites(file)).leaf_count() == 3);
    } else {
      REQUIRE(file.notes().size() == 1);
      CHECK(file.notes()[0].find(row.why) != std::string::npos);
      CHECK(is_undecoded(file, "fc.weight"));
    }
  }
}

TEST_CASE("composites: ModelOpt's schemes of 4 bits depend on the configuration") {
  // [N / 2, K]: the lower halves are rows 0 and 2.
  const auto parts = [](const std::string& config) {
    return Tensors()
        .add<std::uint8_t>("fc.weight", DType::u8, {2, 2}, {0x21, 0xf0, 0x07, 0x80})
        .add<float>("fc.weight_scale", DType::f32, {4, 1}, {1, 2, 4, 8})
        .joined(config);
  };
  for (const char* const config :
       {R"({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"})",
        R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"fc": {"quant_algo": "W4A16_AWQ"}}})"}) {
    CHECK(floats_of(parts(config), "fc.weight") == std::vector<float>{1, 0, 4, -2, 28, 0, 0, -64});
  }
  for (const char* const config : {R"({"quant_algo": "W4A8_AWQ"})", R"({"quant_method": "bitnet"})", ""}) {
    CHECK(is_undecoded(parts(config), "fc.weight"));
  }
}

}  // namespace undecoded_test
