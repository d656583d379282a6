// Tensors of blocks in Snapshots: saved as blocks, loaded as floats, copied, refused.
#include <stele/precision/blocks.hpp>
#include <stele/quantize.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/recorders.hpp"

#include "gguf_file.hpp"

namespace blocks_test {

using namespace stele;
using namespace stele_test;

namespace {

struct Layer {
  Tensor<float, 2> weight;
  std::vector<float> bias;
  STELE_MODULE(Layer, weight, bias)
};
struct Model {
  std::vector<Layer> layers;
  STELE_MODULE(Model, layers)
};

struct One {
  Tensor<float, 2> w;
};

Layer layer(std::size_t rows, std::size_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> numbers(rows * columns);
  for (float& x : numbers) x = normal(random);
  return {Tensor<float, 2>({rows, columns}, numbers), {1, 2, 3}};
}
Model model(std::size_t rows = 3, std::size_t columns = 512) {
  return {{layer(rows, columns, 1), layer(rows, columns, 2)}};
}

constexpr DType every_block[] = {
    DType::q4_0,    DType::q4_1,  DType::q5_0,   DType::q5_1,  DType::q8_0,  DType::q8_1,    DType::q2_k,
    DType::q3_k,    DType::q4_k,  DType::q5_k,   DType::q6_k,  DType::q8_k,  DType::iq2_xxs, DType::iq2_xs,
    DType::iq3_xxs, DType::iq1_s, DType::iq4_nl, DType::iq3_s, DType::iq2_s, DType::iq4_xs,  DType::iq1_m,
    DType::tq1_0,   DType::tq2_0, DType::mxfp4,  DType::nvfp4, DType::q1_0,  DType::q2_0};

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  return numbers;
}

/// Bytes of valid blocks: those that the codec makes, or, for dtypes that it only decodes, any.
std::string block_bytes(DType dtype, std::size_t blocks) {
  const BlockSize size = block_size(dtype);
  std::string bytes(blocks * size.bytes, '\0');
  std::mt19937 random(static_cast<unsigned>(dtype));
  if (encodable(dtype)) {
    std::vector<float> numbers(blocks * size.elements);
    for (float& x : numbers) x = std::normal_distribution<float>(0, 1)(random);
    CHECK(encode_blocks(dtype, numbers.data(), reinterpret_cast<std::byte*>(bytes.data()), blocks) == numbers.size());
    return bytes;
  }
  for (char& c : bytes) c = static_cast<char>(random() & 0x3b);  // no scale with the exponent of NaN
  return bytes;
}

/// A Snapshot of one tensor w, of `rows` rows of `blocks` blocks.
Snapshot of_blocks(DType dtype, std::size_t rows, std::size_t blocks) {
  const std::uint64_t columns = blocks * block_size(dtype).elements;
  const auto type = static_cast<std::uint32_t>(dtype) - 64;
  std::string data = block_bytes(dtype, rows * blocks);
  data.resize((data.size() + 31) / 32 * 32);
  const auto opened =
      gguf::open(gguf::file({gguf::architecture()}, {gguf::tensor("w", {columns, rows}, type, 0)}, data));
  REQUIRE_MESSAGE(opened, why(opened));
  return *opened;
}

template <class R = GgufRecorder<>>
std::string saved_text(const Snapshot& snapshot, const SaveOptions& options = {}) {
  const auto bytes = saved(R(), snapshot, options);
  REQUIRE_MESSAGE(bytes, why(bytes));
  return std::string(text_of(bytes->span()));
}

}  // namespace

TEST_CASE("blocks: every dtype opens, keeps its bytes, and becomes floats") {
  for (const DType dtype : every_block) {
    CAPTURE(name(dtype));
    const std::size_t blocks = 300;  // more than a piece when decoded
    const Snapshot file = of_blocks(dtype, 2, blocks);
    const LeafView leaf = file.leaf(0);
    const std::size_t elements = 2 * blocks * block_size(dtype).elements;
    CHECK(leaf.dtype() == dtype);
    CHECK(leaf.size() == elements);
    const std::string bytes = content(leaf).value();
    CHECK(content(gguf::open(saved_text(file)).value().leaf(0)).value() == bytes);
    CHECK(content(BinaryRecorder<>().open(*saved(BinaryRecorder<>(), file)).value().leaf(0)).value() == bytes);

    std::vector<float> wanted(elements);
    decode_blocks(dtype, reinterpret_cast<const std::byte*>(bytes.data()), wanted.data(), 2 * blocks);
    const auto same = [&](const std::vector<float>& found) {
      return found.size() == wanted.size() && std::memcmp(found.data(), wanted.data(), elements * sizeof(float)) == 0;
    };
    const Snapshot decoded = dequantize(file).value();
    CHECK(decoded.leaf(0).dtype() == DType::f32);
    CHECK(to_string(decoded.leaf(0).shape()) == to_string(leaf.shape()));
    CHECK(same(floats(content(decoded.leaf(0)).value())));
    // Any range of elements, at any address.
    std::mt19937 random(7);
    for (int i = 0; i < 20; ++i) {
      const std::size_t first = random() % elements, n = random() % std::min<std::size_t>(elements - first, 9000);
      std::vector<std::byte> part(n * sizeof(float) + 1);
      REQUIRE(decoded.leaf(0).read(first * sizeof(float), std::span(part).subspan(1)));
      CHECK(std::memcmp(part.data() + 1, wanted.data() + first, n * sizeof(float)) == 0);
    }
    // A precision makes floats of it, too.
    const auto full = SafetensorsRecorder<>().open(*saved(SafetensorsRecorder<FullPrecision>(), file)).value();
    CHECK(same(floats(content(full.leaf(0)).value())));
    const auto half = saved(SafetensorsRecorder<HalfPrecision>(), file, {.convert = {.allow_overflow = true}});
    REQUIRE_MESSAGE(half, why(half));
    CHECK(SafetensorsRecorder<>().open(*half).value().leaf(0).dtype() == DType::f16);
  }
}

TEST_CASE("blocks: formats without them refuse") {
  const Snapshot file = of_blocks(DType::q4_k, 2, 1);
  const auto refused = saved(SafetensorsRecorder<>(), file);
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::not_representable);
  CHECK(refused.error().path() == "w");
  CHECK(refused.error().found() == "dtype q4_K");
  CHECK(refused.error().hint().find("FullPrecision") != std::string::npos);
  One one;
  const std::string bytes = saved_text(file);
  const auto strict = GgufRecorder<>().load_into(one, gguf::source(bytes));
  REQUIRE(!strict);
  CHECK(strict.error().code() == Errc::dtype_mismatch);
  CHECK(strict.error().hint() == "set LoadOptions::dequantize");
  LoadOptions options;
  options.dequantize = true;
  REQUIRE(GgufRecorder<>().load_into(one, gguf::source(bytes), options));
  CHECK(one.w.shape()[1] == 256);
  CHECK(code_of(transpose(file, "w")) == Errc::unsupported);
  const Extent flat[] = {512};
  CHECK(code_of(reshape(file, "w", flat)) == Errc::unsupported);
}

TEST_CASE("blocks: a precision setting encodes matrices") {
  const Model module = model();
  Report report;
  const auto bytes = [&] {
    BufferSink sink;
    report = GgufRecorder<GgufPrecision<ggml::q4_K>>().save(module, sink).value();
    return sink.take();
  }();
  const Snapshot file = GgufRecorder<>().open(bytes).value();
  CHECK(file.leaf(0).dtype() == DType::q4_k);
  CHECK(file.leaf(1).dtype() == DType::f32);  // bias
  REQUIRE(report.count(Report::What::quantized) == 2);
  CHECK(std::string(report[0].path) == "layers.0.weight");
  CHECK(std::string(report[0].detail).starts_with("f32 -> q4_K; largest error 0."));
  // The row has the errors of the written numbers.
  const std::vector<float> decoded = floats(content(dequantize(file).value().leaf(0)).value());
  double largest = 0, sum = 0;
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    const double error =
        std::abs(static_cast<double>(decoded[i]) - static_cast<double>(module.layers[0].weight.data()[i]));
    largest = std::max(largest, error);
    sum += error;
  }
  char text[100];
  std::snprintf(text, sizeof text, "f32 -> q4_K; largest error %.3g, mean %.3g, ", largest,
                sum / static_cast<double>(decoded.size()));
  CHECK(std::string(report[0].detail).starts_with(text));
  CHECK(largest < 0.2);
  // A dry run has the same rows, and any recorder that holds blocks has the same bytes.
  BufferSink none;
  SaveOptions dry;
  dry.dry_run = true;
  const Report planned = GgufRecorder<GgufPrecision<ggml::q4_K>>().save(module, none, dry).value();
  REQUIRE(planned.size() == report.size());
  CHECK(planned[0].detail == report[0].detail);
  const auto own = saved(BinaryRecorder<GgufPrecision<ggml::q4_K>>(), module);
  REQUIRE_MESSAGE(own, why(own));
  LoadOptions options;
  options.dequantize = true;
  const Model again = BinaryRecorder<>().load<Model>(*own, options).value();
  CHECK(std::memcmp(again.layers[0].weight.data(), decoded.data(), decoded.size() * sizeof(float)) == 0);
  CHECK(code_of(saved(SafetensorsRecorder<GgufPrecision<ggml::q4_K>>(), module)) == Errc::not_representable);
}

namespace {

struct Mixed : NativePrecision {
  static constexpr BlockRule block_rules[] = {
      {"layers.0.weight", DType::q6_k}, {"*.bias", DType::f16}, {"layers.*", DType::q8_0}};
};

}  // namespace

TEST_CASE("blocks: a dtype for each pattern") {
  const auto bytes = saved(GgufRecorder<Mixed>(), model());
  REQUIRE_MESSAGE(bytes, why(bytes));
  const Snapshot file = GgufRecorder<>().open(*bytes).value();
  CHECK(file.leaf(0).dtype() == DType::q6_k);
  CHECK(file.leaf(1).dtype() == DType::f16);
  CHECK(file.leaf(2).dtype() == DType::q8_0);
  CHECK(*file.properties().find("general.quantization_version") == Value(std::int64_t{2}));
  // Blocks stay blocks of their dtype, and the bytes do not depend on the threads.
  SaveOptions one;
  one.threads = 1;
  CHECK(text_of(saved(GgufRecorder<Mixed>(), model(), one)->span()) == text_of(bytes->span()));
  CHECK(saved_text<GgufRecorder<GgufPrecision<ggml::q4_0>>>(file).size() == bytes->size());
}

TEST_CASE("blocks: from every dtype of floats, in pieces of any size") {
  const Model module = model(70, 2048);  // more than a piece at any dtype
  const Snapshot wide = snapshot_of(module).value();
  for (const DType from : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const PrecisionRule rules[] = {{"*", from}};
    const Snapshot floats_ = with_precision(wide, rules);
    for (const DType to : {DType::q8_0, DType::q6_k, DType::tq1_0, DType::mxfp4}) {
      CAPTURE(name(from));
      CAPTURE(name(to));
      const BlockRule block[] = {{"*", to}};
      const Snapshot encoded = quantize_blocks(floats_, block).value();
      const std::string numbers = content(with_precision(floats_, PrecisionSpec{DType::f32}).leaf(0)).value();
      std::string wanted(encoded.leaf(0).byte_size(), '\0');
      const std::size_t blocks = wanted.size() / block_size(to).bytes;
      encode_blocks(to, floats(numbers).data(), reinterpret_cast<std::byte*>(wanted.data()), blocks);
      CHECK(content(encoded.leaf(0)).value() == wanted);
      // Ranges of whole blocks.
      const std::size_t size = block_size(to).bytes;
      std::vector<std::byte> part(7 * size);
      REQUIRE(encoded.leaf(0).read(5 * size, part));
      CHECK(std::memcmp(part.data(), wanted.data() + 5 * size, part.size()) == 0);
    }
  }
}

TEST_CASE("blocks: rows that are not whole blocks get the nearest dtype") {
  const auto dtype_of = [](DType wanted, std::size_t columns, Report* report = nullptr) {
    const Model module = model(2, columns);
    const BlockRule rules[] = {{"*", wanted}};
    return quantize_blocks(snapshot_of(module).value(), rules, report).value().leaf(0).dtype();
  };
  Report report;
  CHECK(dtype_of(DType::q4_k, 96, &report) == DType::q5_0);
  CHECK(report.count(Report::What::quantized) == 2);  // one for each layer
  REQUIRE(report.count(Report::What::kept) == 2);
  CHECK(std::string(report[0].detail) == "q5_0, not q4_K: rows of 96 elements, no multiple of 256");
  CHECK(dtype_of(DType::q5_k, 96) == DType::q5_1);
  CHECK(dtype_of(DType::q6_k, 96) == DType::q8_0);
  CHECK(dtype_of(DType::q2_k, 96) == DType::q4_0);
  CHECK(dtype_of(DType::tq1_0, 96) == DType::q4_0);
  CHECK(dtype_of(DType::q8_0, 33) == DType::f16);
  CHECK(dtype_of(DType::nvfp4, 96) == DType::q8_0);
  const Model module = model();
  for (const DType bad : {DType::iq2_xxs, DType::q8_k, DType::i8, DType::f8_e5m2}) {
    const BlockRule rules[] = {{"*", bad}};
    CHECK(code_of(quantize_blocks(snapshot_of(module).value(), rules)) == Errc::unsupported);
  }
}

TEST_CASE("blocks: numbers that are not finite are refused") {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    Model module = model();
    module.layers[1].weight.data()[700] = bad;
    const auto refused = saved(GgufRecorder<GgufPrecision<ggml::q5_K>>(), module);
    REQUIRE(!refused);
    CHECK(refused.error().code() == Errc::out_of_range);
    CHECK(refused.error().path() == "layers.1.weight");
    CHECK(refused.error().found() == "element 700");
  }
}

TEST_CASE("blocks: numbers that make a scale infinite are refused") {
  for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_k, DType::tq2_0, DType::nvfp4}) {
    CAPTURE(name(dtype));
    Model module = model();
    module.layers[0].weight.data()[300] = 3e38F;
    const BlockRule rules[] = {{"*", dtype}};
    const Snapshot snapshot = snapshot_of(module).value();
    const auto all = content(quantize_blocks(snapshot, rules).value().leaf(0));
    REQUIRE(code_of(all) == (dtype == DType::nvfp4 ? Errc::none : Errc::out_of_range));
    if (!all) CHECK(all.error().path() == "layers.0.weight");
  }
}

namespace {

struct Attention {
  Tensor<float, 2> weight;
};
struct Block {
  Attention attn_q, attn_v, attn_output, ffn_down, ffn_up;
  std::map<std::string, std::vector<float>> attn_norm;
  STELE_MODULE(Block, attn_q, attn_v, attn_output, ffn_down, ffn_up, attn_norm)
};
struct Named {
  std::map<std::string, Attention> blk;
};
struct Llama {
  std::vector<Block> blk;
  Attention token_embd, output;
  STELE_MODULE(Llama, blk, token_embd, output)
};

}  // namespace

TEST_CASE("blocks: mixtures of llama-quantize") {
  const auto matrix = [] { return Attention{Tensor<float, 2>({2, 256})}; };
  Llama llama;
  for (int i = 0; i < 16; ++i) {
    llama.blk.push_back({matrix(), matrix(), matrix(), matrix(), matrix(), {{"weight", std::vector<float>(256)}}});
  }
  llama.token_embd = matrix();
  llama.output = matrix();
  const Snapshot plain = snapshot_of(llama).value();
  const auto dtypes = [&](std::string_view mixture, std::string_view suffix) {
    const Snapshot quantized = quantize_gguf(plain, mixture).value();
    std::string text;
    for (std::size_t i = 0; i < quantized.leaf_count(); ++i) {
      if (quantized.leaf(i).path().ends_with(suffix)) text += std::string(name(quantized.leaf(i).dtype())) + ' ';
    }
    return text;
  };
  const auto times = [](int n, std::string_view what) {
    std::string text;
    for (int i = 0; i < n; ++i) text += std::string(what) + ' ';
    return text;
  };
  CHECK(dtypes("Q8_0", "output.weight") == times(17, "q8_0"));
  CHECK(dtypes("Q4_K_M", "attn_norm.weight") == times(16, "f32"));
  CHECK(dtypes("Q4_K_M", "attn_q.weight") == times(16, "q4_K"));
  // The first and last eighth, and every third between.
  CHECK(dtypes("Q4_K_M", "attn_v.weight") ==
        "q6_K q6_K q4_K q4_K q6_K q4_K q4_K q6_K q4_K q4_K q6_K q4_K q4_K q6_K q6_K q6_K ");
  CHECK(dtypes("Q4_K_M", "ffn_down.weight") == dtypes("Q4_K_M", "attn_v.weight"));
  CHECK(dtypes("Q4_K_S", "attn_v.weight") == times(4, "q5_K") + times(12, "q4_K"));
  CHECK(dtypes("Q4_K_S", "ffn_down.weight") == times(2, "q5_K") + times(14, "q4_K"));
  CHECK(dtypes("Q3_K_M", "attn_v.weight") == times(2, "q5_K") + times(14, "q4_K"));
  CHECK(dtypes("Q3_K_M", "attn_output.weight") == times(16, "q4_K"));
  CHECK(dtypes("Q3_K_L", "ffn_down.weight") == times(16, "q5_K"));
  CHECK(dtypes("Q2_K", "attn_output.weight") == times(16, "q3_K"));
  CHECK(dtypes("TQ1_0", "token_embd.weight") == "q4_K ");
  CHECK(dtypes("F16", "ffn_up.weight") == times(16, "f16"));
  CHECK(*quantize_gguf(plain, "Q5_K_M").value().properties().find("general.file_type") == Value(std::int64_t{17}));
  const auto unknown = quantize_gguf(plain, "q4_K_M");
  REQUIRE(!unknown);
  CHECK(unknown.error().code() == Errc::invalid_argument);
}

TEST_CASE("blocks: a save reports each matrix that has another dtype than the one asked for") {
  struct Row {
    std::string_view name;
    std::size_t columns;
    std::string_view asked, kept;  // a dtype or a mixture; the row's detail, empty for none
  };
  constexpr Row rows[] = {
      {"ffn_up", 256, "q4_K", ""},
      {"ffn_up", 96, "q4_K", "q5_0, not q4_K: rows of 96 elements, no multiple of 256"},
      {"ffn_up", 40, "q4_K", "f16, not q4_K: rows of 40 elements, no multiple of 256"},
      {"ffn_up", 40, "q8_0", "f16, not q8_0: rows of 40 elements, no multiple of 32"},
      {"ffn_up", 256, "Q4_K_S", ""},
      {"ffn_up", 96, "Q4_K_S", "q5_0, not q4_K: rows of 96 elements, no multiple of 256"},
      {"ffn_gate_inp", 256, "Q4_K_S", "f32, not Q4_K_S: llama.cpp keeps this tensor's precision"},
      {"ffn_gate_inp", 256, "F16", "f32, not F16: llama.cpp keeps this tensor's precision"},
      {"ffn_gate_inp", 256, "F32", ""},
      {"ffn_up", 96, "F16", ""},
  };
  for (const Row& row : rows) {
    const std::string matrix(row.name), asked(row.asked), kept(row.kept);
    const std::size_t columns = row.columns;
    CAPTURE(matrix);
    CAPTURE(columns);
    CAPTURE(asked);
    Named model;
    model.blk[matrix] = {Tensor<float, 2>({2, columns}, std::vector<float>(2 * columns, 1.0F))};
    const Snapshot floats_ = snapshot_of(model).value();
    std::vector<BlockRule> rule;
    for (const DType dtype : every_block) {
      if (name(dtype) == asked) rule.push_back({"*", dtype});
    }
    const Snapshot quantized = (rule.empty() ? quantize_gguf(floats_, asked) : quantize_blocks(floats_, rule)).value();
    for (const bool dry_run : {false, true}) {
      CAPTURE(dry_run);
      SaveOptions options;
      options.dry_run = dry_run;
      BufferSink sink;
      const Report report = GgufRecorder<>().save(quantized, sink, options).value();
      REQUIRE(report.count(Report::What::kept) == (kept.empty() ? 0U : 1U));
      if (!kept.empty()) CHECK(report[0].detail == kept);
      if (!kept.empty()) CHECK(report[0].path == "blk." + matrix + ".weight");
    }
    BufferSink sink;
    const Snapshot again = with_precision(dequantize(quantized).value(), PrecisionSpec{DType::f64});
    CHECK(GgufRecorder<>().save(again, sink).value().count(Report::What::kept) == 0);
  }
}

}  // namespace blocks_test
