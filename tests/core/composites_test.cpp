// Composite tensors: quantized weights of the schemes of the Hugging Face hub. The golden files are one layer each of
// checkpoints that the packages wrote (tests/interop/quantized/make.py and cut.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stele/composite.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/gguf.hpp"
#include "stele/recorders/onnx.hpp"
#include "stele/recorders/safetensors.hpp"
#include "stele/transform.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace composites_test {

namespace {

using namespace stele;
using namespace stele_test;

const std::string folder = test_data() + "/core/data/quantized/";

struct Golden {
  std::string scheme, weight;
  std::vector<Extent> shape;
  std::string hash;
};

std::vector<Golden> golden() {
  std::vector<Golden> all;
  std::ifstream file(folder + "expected.txt");
  for (std::string line; std::getline(file, line);) {
    Golden g;
    std::string shape;
    std::istringstream(line) >> g.scheme >> g.weight >> shape >> g.hash;
    std::istringstream extents(shape);
    for (std::string extent; std::getline(extents, extent, 'x');) g.shape.push_back(std::stoull(extent));
    all.push_back(std::move(g));
  }
  return all;
}

/// Opens the folder, or the file in a folder that has no configuration.
Snapshot opened(const std::string& scheme) {
  const std::string path = folder + scheme;
  return good(stele::open(std::filesystem::exists(path + "/config.json") ? path : path + "/model.safetensors"));
}

std::vector<float> numbers_of(const LeafView& leaf) {
  REQUIRE(leaf.dtype() == DType::f32);
  std::vector<float> numbers(leaf.size());
  struct Copy final : PieceSink {
    std::byte* to = nullptr;
    Status piece(std::span<const std::byte> bytes) override {
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
      return {};
    }
  } copy;
  copy.to = reinterpret_cast<std::byte*>(numbers.data());
  ReadContext context;
  good(leaf.stream(copy, context));
  CHECK(copy.to == reinterpret_cast<std::byte*>(numbers.data() + numbers.size()));
  return numbers;
}

/// The hash of expected.txt.
std::string hash_of(std::span<const float> numbers) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float x : numbers) {
    std::uint32_t bits = 0;
    const float same = std::isnan(x) ? std::nanf("") : x + 0.0F;
    std::memcpy(&bits, &same, sizeof bits);
    for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 255U)) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

bool equal(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A snapshot of small tensors, made by hand.
class Parts {
 public:
  Parts() { builder_.set_flat(); }
  template <class T>
  Parts& add(std::string_view name, DType dtype, std::vector<Extent> shape, std::vector<T> elements) {
    auto bytes = std::make_shared<std::vector<T>>(std::move(elements));
    static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) {
      return reinterpret_cast<const std::byte*>(static_cast<const std::vector<T>*>(at)->data());
    }};
    builder_.keep(bytes);
    builder_.tensor(builder_.intern(name), dtype, shape, bytes->size() * sizeof(T), {&ops, bytes.get(), 0});
    return *this;
  }
  Parts& config(std::string text) {
    builder_.set_metadata({{"quantization_config", std::move(text)}});
    return *this;
  }
  Snapshot finish() { return builder_.finish(); }

 private:
  SnapshotBuilder builder_;
};

}  // namespace

TEST_CASE("composites: arrays of mlx.core.savez with every number of bits and group size") {
  const Snapshot snapshot = good(stele::open(folder + "mlx_npz/weights.npz"));
  CHECK(snapshot.notes().empty());
  CHECK(snapshot.leaf_count() == 18);
  std::ifstream file(folder + "mlx_npz/expected.txt");
  int count = 0;
  for (std::string name, shape, hash; file >> name >> shape >> hash; ++count) {
    CAPTURE(name);
    const auto leaf = snapshot.find(name);
    REQUIRE(leaf);
    CHECK(leaf->shape()[1] == 256);
    CHECK(hash_of(numbers_of(*leaf)) == hash);
  }
  CHECK(count == 18);
  // Without config.json, some shapes fit only one group size; the others stay parts, with a note.
  const TempDir dir;
  std::filesystem::copy_file(folder + "mlx_npz/weights.npz", dir / "weights.npz");
  const Snapshot alone = good(stele::open(dir / "weights.npz"));
  CHECK_FALSE(alone.notes().empty());
  CHECK(numbers_of(*alone.find("b5g64.weight")) == numbers_of(*snapshot.find("b5g64.weight")));
  CHECK(numbers_of(*alone.find("b2g32.weight")) == numbers_of(*snapshot.find("b2g32.weight")));
  for (const char* name : {"b4g32", "b2g64", "b4g64", "b8g32", "b3g128"}) {
    CHECK(alone.find(name + std::string(".weight"))->dtype() == DType::u32);
    CHECK(alone.find(name + std::string(".biases")));
  }
}

TEST_CASE("composites: every scheme decodes like its package") {
  const auto all = golden();
  REQUIRE(all.size() > 80);
  for (const Golden& g : all) {
    CAPTURE(g.scheme);
    const Snapshot snapshot = opened(g.scheme);
    CHECK(snapshot.notes().empty());
    const auto leaf = snapshot.find(g.weight);
    REQUIRE(leaf);
    // ComfyUI pads the rows.
    const auto count = static_cast<std::size_t>(*element_count(g.shape));
    CHECK(leaf->shape().back() == g.shape.back());
    if (!g.scheme.starts_with("comfy")) CHECK(Shape(leaf->shape()) == Shape(std::span<const Extent>(g.shape)));
    const std::vector<float> numbers = numbers_of(*leaf);
    REQUIRE(numbers.size() >= count);
    CHECK(hash_of(std::span(numbers).first(count)) == g.hash);
    const auto info = composite(*leaf);
    REQUIRE(info);
    CHECK(info->parts.size() >= 2);
    CHECK(info->bytes < leaf->byte_size());
    // Parts of it, at any offset.
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}, numbers.size() / 3, numbers.size() - 1}) {
      for (const std::size_t n : {std::size_t{1}, std::size_t{37}, numbers.size() / 2}) {
        if (n > numbers.size() - first) continue;
        std::vector<std::byte> bytes(n * sizeof(float) + 1);
        const std::span out = std::span(bytes).subspan(1);  // not aligned
        good(leaf->read(first * sizeof(float), out));
        CHECK(std::memcmp(out.data(), numbers.data() + first, out.size()) == 0);
      }
    }
  }
}

TEST_CASE("composites: saved as parts where the format has them, as f32 elsewhere") {
  const TempDir dir;
  for (const Golden& g : golden()) {
    CAPTURE(g.scheme);
    const Snapshot snapshot = opened(g.scheme);
    const std::vector<float> numbers = numbers_of(*snapshot.find(g.weight));
    const Snapshot parts = good(split_composites(snapshot));
    CHECK(parts.leaf_count() > snapshot.leaf_count());
    CHECK(!parts.find(g.weight + "_nothing"));
    for (const char* const name : {"m.safetensors", "m.stele", "m.npz", "m.pt"}) {
      CAPTURE(name);
      const std::string path = dir.path() + "/" + name;
      const auto report = save(snapshot, path, quick());
      if (!report) {  // a dtype that the format does not have
        CHECK(report.error().code() == Errc::not_representable);
        continue;
      }
      const Snapshot again = good(stele::open(path));
      REQUIRE(again.find(g.weight));
      CHECK(equal(numbers_of(*again.find(g.weight)), numbers));
      if (report->count(Report::What::converted) == 0) CHECK(again.leaf_count() == snapshot.leaf_count());
    }
    // As a precision, the numbers are decoded.
    SaveOptions options = quick();
    options.precision = DType::f32;
    good(save(snapshot, dir.path() + "/f.safetensors", options));
    const Snapshot floats = good(stele::open(dir.path() + "/f.safetensors"));
    CHECK(!composite(*floats.find(g.weight)));
    CHECK(equal(numbers_of(*floats.find(g.weight)), numbers));
    const Report report = good(save(snapshot, dir.path() + "/m.gguf", quick()));
    CHECK(report.count(Report::What::converted) == 1);
    CHECK(equal(numbers_of(*good(stele::open(dir.path() + "/m.gguf")).find(g.weight)), numbers));
  }
}

namespace {

struct Projection {
  Tensor<float, 2> weight;
  STELE_MODULE(Projection, weight)
};
struct Attention {
  Projection k_proj;
  STELE_MODULE(Attention, k_proj)
};
struct Layer {
  Attention self_attn;
  STELE_MODULE(Layer, self_attn)
};
struct Layers {
  std::vector<Layer> layers;
  STELE_MODULE(Layers, layers)
};
struct Model {
  Layers model;
  STELE_MODULE(Model, model)
};

/// A class that has the parts.
struct Gptq {
  Tensor<std::int32_t, 2> qweight, qzeros;
  Tensor<std::int32_t, 1> g_idx;
  Tensor<float, 2> scales;
  STELE_MODULE(Gptq, qweight, qzeros, g_idx, scales)
};
struct GptqAttention {
  Gptq k_proj;
  STELE_MODULE(GptqAttention, k_proj)
};
struct GptqLayer {
  GptqAttention self_attn;
  STELE_MODULE(GptqLayer, self_attn)
};
struct GptqLayers {
  std::vector<GptqLayer> layers;
  STELE_MODULE(GptqLayers, layers)
};
struct GptqModel {
  GptqLayers model;
  STELE_MODULE(GptqModel, model)
};

}  // namespace

TEST_CASE("composites: a class has the weight, or its parts") {
  const Snapshot snapshot = opened("gptq4");
  const std::vector<float> numbers = numbers_of(*snapshot.find("model.layers.0.self_attn.k_proj.weight"));
  const auto model = good(load<Model>(folder + "gptq4"));
  const auto& weight = model.model.layers.at(0).self_attn.k_proj.weight;
  CHECK(equal({weight.data(), weight.size()}, numbers));
  const auto parts = good(load<GptqModel>(folder + "gptq4"));
  CHECK(parts.model.layers.at(0).self_attn.k_proj.qweight.shape()[0] == 8);
  GptqModel into;
  into.model.layers.resize(1);
  Report report;
  LoadOptions options;
  options.report = &report;
  good(load_into(into, folder + "gptq4", options));
  CHECK(report.count(Report::What::missing) == 0);
}

TEST_CASE("composites: parts that lie stay tensors, with a note") {
  const std::string name = "l.weight";
  const auto joined = [](Parts& parts) { return good(join_composites(parts.finish())); };
  {  // a good one first
    Parts parts;
    parts.add<std::uint8_t>("l.weight", DType::f8_e4m3fn, {2, 2}, {0x38, 0x40, 0xb8, 0x00})
        .add<float>("l.weight_scale_inv", DType::f32, {1, 1}, {0.5F});
    const Snapshot s = joined(parts);
    REQUIRE(s.leaf_count() == 1);
    CHECK(numbers_of(s.leaf(0)) == std::vector<float>{0.5F, 1, -0.5F, 0});
    CHECK(composite(s.leaf(0))->scheme == "fp8");
    CHECK(composite(s.leaf(0))->parts[1].name == "l.weight_scale_inv");
  }
  const auto refused = [&](Parts& parts, std::size_t leaves, std::size_t notes = 1) {
    const Snapshot s = joined(parts);
    CHECK(s.leaf_count() == leaves);
    CHECK(s.notes().size() == notes);
    for (std::size_t i = 0; i < s.leaf_count(); ++i) CHECK(!composite(s.leaf(i)));
  };
  {
    Parts parts;  // a grid of another shape
    parts.add<std::uint8_t>("l.weight", DType::f8_e4m3fn, {2, 2}, {0, 0, 0, 0})
        .add<float>("l.weight_scale_inv", DType::f32, {3, 1}, {1, 1, 1});
    refused(parts, 2);
  }
  {
    Parts parts;  // no scale
    parts.add<std::uint8_t>("l.weight", DType::f8_e4m3fn, {2, 2}, {0, 0, 0, 0});
    refused(parts, 1, 0);
  }
  {
    Parts parts;  // a scale of a plain weight, as normalisation layers have
    parts.add<float>("l.weight", DType::f32, {2}, {1, 2}).add<float>("l.weight_scale", DType::f32, {1}, {1});
    refused(parts, 2, 0);
  }
  const auto gptq = [](std::vector<std::int32_t> groups, std::vector<Extent> zeros = {1, 1},
                       std::string config = R"({"bits":4})") {
    Parts parts;
    parts.add<std::int32_t>("l.qweight", DType::i32, {1, 8}, std::vector<std::int32_t>(8, 0x76543210))
        .add<std::int32_t>("l.qzeros", DType::i32, zeros, std::vector<std::int32_t>(zeros[0] * zeros[1], 0x77777777))
        .add<float>("l.scales", DType::f32, {1, 8}, std::vector<float>(8, 2))
        .config(std::move(config));
    if (!groups.empty()) parts.add<std::int32_t>("l.g_idx", DType::i32, {groups.size()}, groups);
    return parts;
  };
  {
    Parts parts = gptq(std::vector<std::int32_t>(8, 0));
    const Snapshot s = joined(parts);
    REQUIRE(s.leaf_count() == 1);
    CHECK(numbers_of(s.leaf(0))[1] == -14);  // (1 - 8) * 2
  }
  {
    Parts parts = gptq(std::vector<std::int32_t>(7, 0));  // 7 columns need a word, too
    CHECK(joined(parts).leaf(0).shape()[1] == 7);
  }
  {
    Parts parts = gptq(std::vector<std::int32_t>(33, 0));
    refused(parts, 4);
  }
  {
    Parts parts = gptq({}, {1, 3});
    refused(parts, 3);
  }
  {
    Parts parts = gptq({}, {1, 1}, R"({"bits":4,"checkpoint_format":"marlin"})");
    refused(parts, 3);
  }
  for (const char* const version : {"gemm", "GEMM", "exllama", "exllamav2", "ipex", "gemv", "gemv_fast", "marlin"}) {
    CAPTURE(version);
    Parts parts;  // of gemm, [inputs, outputs / 8]
    parts.add<std::int32_t>("l.qweight", DType::i32, {16, 1}, std::vector<std::int32_t>(16, 0x11111111))
        .add<std::int32_t>("l.qzeros", DType::i32, {1, 1}, {0})
        .add<float>("l.scales", DType::f32, {1, 8}, std::vector<float>(8, 2))
        .config(R"({"quant_method":"awq","bits":4,"version":")" + std::string(version) + "\"}");
    const Snapshot s = joined(parts);
    const bool known = version != std::string_view("marlin") && !std::string_view(version).starts_with("gemv");
    REQUIRE(s.leaf_count() == (known ? 1 : 3));
    if (known) {
      CHECK(composite(s.leaf(0))->scheme == "awq");
      CHECK(numbers_of(s.leaf(0)) == std::vector<float>(128, 2));
    } else {
      CHECK(s.notes()[0] == "l.weight: the parts of awq stay tensors: the layout " + std::string(version));
    }
  }
  {
    Parts parts;  // of gemv, whose shapes are others
    parts.add<std::int32_t>("l.qweight", DType::i32, {8, 2}, std::vector<std::int32_t>(16, 0x11111111))
        .add<std::int32_t>("l.qzeros", DType::i32, {8, 1}, std::vector<std::int32_t>(8, 0))
        .add<float>("l.scales", DType::f32, {8, 8}, std::vector<float>(64, 2))
        .config(R"({"quant_method":"awq","bits":4,"version":"gemv"})");
    CHECK(joined(parts).notes()[0] == "l.weight: the parts of awq stay tensors: the layout gemv");
  }
  for (const std::int32_t unset : {0, 1, 8}) {  // compressed-tensors: with a -1, columns are in order
    CAPTURE(unset);
    std::vector<std::int32_t> groups = {1, 1, 1, 1, 0, 0, 0, 0};
    for (std::size_t i = 0; i < static_cast<std::size_t>(unset); ++i) groups[i] = -1;
    Parts parts;
    parts.add<std::int32_t>("l.weight_packed", DType::i32, {1, 1}, {static_cast<std::int32_t>(0x99999999)})
        .add<std::int64_t>("l.weight_shape", DType::i64, {2}, {1, 8})
        .add<float>("l.weight_scale", DType::f32, {1, 2}, {1, 10})
        .add<std::int32_t>("l.weight_g_idx", DType::i32, {8}, groups)
        .config(R"({"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"strategy":"group",)"
                R"("group_size":4}}}})");
    const Snapshot s = joined(parts);
    REQUIRE(s.leaf_count() == 1);
    const std::vector<float> ordered = {1, 1, 1, 1, 10, 10, 10, 10}, listed = {10, 10, 10, 10, 1, 1, 1, 1};
    CHECK(numbers_of(s.leaf(0)) == (unset != 0 ? ordered : listed));
  }
  for (const std::size_t zeros : {2U, 1U}) {  // zero points that are not packed
    Parts parts;
    parts.add<std::int32_t>("l.weight_packed", DType::i32, {1, 1}, {static_cast<std::int32_t>(0x99999999)})
        .add<std::int64_t>("l.weight_shape", DType::i64, {2}, {1, 8})
        .add<float>("l.weight_scale", DType::f32, {1, 2}, {1, 10})
        .add<std::int8_t>("l.weight_zero_point", DType::i8, {1, zeros},
                          zeros == 2 ? std::vector<std::int8_t>{1, -1} : std::vector<std::int8_t>{1})
        .config(R"({"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"strategy":"group",)"
                R"("group_size":4}}}})");
    if (zeros == 1) {
      refused(parts, 4);
      continue;
    }
    const Snapshot s = joined(parts);
    REQUIRE(s.leaf_count() == 1);
    CHECK(numbers_of(s.leaf(0)) == std::vector<float>{0, 0, 0, 0, 20, 20, 20, 20});
  }
  for (const DType dtype : {DType::f8_e4m3fn, DType::i8}) {  // bytes with a list of groups
    Parts parts;
    parts.add<std::uint8_t>("l.weight", dtype, {1, 4}, std::vector<std::uint8_t>(4, dtype == DType::i8 ? 1 : 0x38))
        .add<float>("l.weight_scale", DType::f32, {1, 2}, {1, 10})
        .add<std::int32_t>("l.weight_g_idx", DType::i32, {4}, {1, 0, 0, 1})
        .config(R"({"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":8,"strategy":"group",)"
                R"("group_size":2}}}})");
    const Snapshot s = joined(parts);
    REQUIRE(s.leaf_count() == 1);
    CHECK(numbers_of(s.leaf(0)) == std::vector<float>{10, 1, 1, 10});
  }
  for (const std::int32_t group : {1, -1, 0x7fffffff}) {  // found when the weight is read
    std::vector<std::int32_t> groups(8, 0);
    groups[3] = group;
    Parts parts = gptq(groups);
    const Snapshot s = joined(parts);
    REQUIRE(s.leaf_count() == 1);
    std::vector<std::byte> out(4);
    const auto read = s.leaf(0).read(0, out);
    REQUIRE(!read);
    CHECK(read.error().code() == Errc::out_of_range);
    CHECK(read.error().path() == "l.g_idx");
  }
  {
    Parts parts;  // the weight's name is taken
    parts.add<std::int32_t>("l.qweight", DType::i32, {1, 8}, std::vector<std::int32_t>(8, 0))
        .add<std::int32_t>("l.qzeros", DType::i32, {1, 1}, {0})
        .add<float>("l.scales", DType::f32, {1, 8}, std::vector<float>(8, 1))
        .add<float>("l.weight", DType::f32, {1}, {1})
        .config(R"({"bits":4})");
    refused(parts, 4);
  }
  {
    Parts parts;  // two scales for one weight
    parts.add<std::uint8_t>("l.weight", DType::f8_e4m3fn, {1, 2}, {0x38, 0x38})
        .add<float>("l.weight_scale_inv", DType::f32, {1, 1}, {1})
        .add<float>("l.weight_scale", DType::f32, {1}, {2});
    const Snapshot s = joined(parts);
    CHECK(s.leaf_count() == 2);
    CHECK(s.find("l.weight_scale"));
    CHECK(s.notes().size() == 1);
  }
  {
    Parts parts;  // no scales
    parts.add<std::int32_t>("l.qweight", DType::i32, {1, 8}, std::vector<std::int32_t>(8, 0))
        .add<std::int32_t>("l.qzeros", DType::i32, {1, 1}, {0});
    refused(parts, 2);
  }
  const auto nf4 = [](const std::string& state, const std::string& weight = "l.weight") {
    Parts parts;
    std::vector<float> map(16);
    for (std::size_t i = 0; i < map.size(); ++i) map[i] = static_cast<float>(i);
    parts.add<std::uint8_t>(weight, DType::u8, {3, 1}, {0x01, 0x23, 0x40})
        .add<float>(weight + ".absmax", DType::f32, {3}, {1, 10, 100})
        .add<float>(weight + ".quant_map", DType::f32, {16}, map)
        .add<std::uint8_t>(weight + ".quant_state.bitsandbytes__nf4", DType::u8, {state.size()},
                           {state.begin(), state.end()});
    return parts;
  };
  for (const char* const weight : {"l.weight", "l.experts.gate_up_proj", "weight"}) {
    for (const char* const shape : {"[1,5]", "[5,1,1]"}) {
      CAPTURE(weight);
      Parts parts = nf4(R"({"blocksize":2,"shape":)" + std::string(shape) + "}", weight);
      const Snapshot s = joined(parts);
      REQUIRE(s.leaf_count() == 1);
      CHECK(s.leaf(0).path() == weight);
      CHECK(numbers_of(s.leaf(0)) == std::vector<float>{0, 1, 20, 30, 400});
      CHECK(composite(s.leaf(0))->parts[1].name == weight + std::string(".absmax"));
      CHECK(good(split_composites(s)).leaf_count() == 4);
    }
  }
  {
    Parts parts;  // of no weight
    parts.add<float>("state.absmax", DType::f32, {2}, {1, 2}).add<float>("state", DType::f32, {2}, {1, 2});
    refused(parts, 2, 0);
  }
  for (const char* const state :
       {"", "{", "[]", R"({"blocksize":0,"shape":[1,5]})", R"({"blocksize":2,"shape":[1,50]})",
        R"({"blocksize":2,"shape":[1,4]})", R"({"blocksize":2})", R"({"blocksize":3,"shape":[1,5]})",
        R"({"blocksize":2,"shape":[4294967296,4294967296,5]})", R"({"blocksize":18446744073709551615,"shape":[1,5]})",
        R"({"blocksize":2,"shape":[-1,5]})"}) {
    CAPTURE(state);
    Parts parts = nf4(state);
    refused(parts, 4);
  }
  for (const auto& extents :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 8}, {2, 7}, {1, 8}, {2, -8}, {2, 0}, {2, INT64_MAX}}) {
    const auto rows = extents.first, columns = extents.second;
    CAPTURE(rows);
    CAPTURE(columns);
    Parts parts;
    parts.add<std::int32_t>("l.weight_packed", DType::i32, {2, 1}, {0x76543210, 0})
        .add<std::int64_t>("l.weight_shape", DType::i64, {2}, {rows, columns})
        .add<float>("l.weight_scale", DType::f32, {2, 1}, {1, 1})
        .config(R"({"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"strategy":"channel"}}}})");
    const Snapshot s = joined(parts);
    CHECK(s.leaf_count() == (rows == 2 && columns > 0 && columns <= 8 ? 1 : 3));
  }
}

namespace {

/// Codes of 8 bits of ones [rows, columns] with these scales [down, across], 1, 2, 3, ...
Parts fp8(const std::string& layer, std::uint64_t rows, std::uint64_t columns, std::uint64_t down, std::uint64_t across,
          const std::string& config = {}, const std::string& scale = ".weight_scale") {
  std::vector<float> scales(down * across);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i + 1);
  Parts parts;
  parts
      .add<std::uint8_t>(layer + ".weight", DType::f8_e4m3fn, {rows, columns},
                         std::vector<std::uint8_t>(rows * columns, 0x38))
      .add<float>(layer + scale, DType::f32, {down, across}, scales);
  if (!config.empty()) parts.config(config);
  return parts;
}

/// Blocks of 8 rows, and further settings.
std::string more_settings(int count) {
  std::string text = "[8,8]";
  for (int i = 0; i < count; ++i) text += ",\"s" + std::to_string(i) + "\":1";
  return text;
}

std::string groups(const std::vector<std::pair<std::string, std::string>>& all) {
  std::string text;
  for (const auto& [targets, block] : all) {
    text += (text.empty() ? "" : ",") + ("\"g" + std::to_string(text.size())) + R"(":{"targets":[)" + targets +
            R"(],"weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":)" + block + "}}";
  }
  return R"({"quant_method":"compressed-tensors","config_groups":{)" + text + "}}";
}

}  // namespace

TEST_CASE("composites: the configuration decides the size of blocks, by the layer's target") {
  // 12 rows with two scales: blocks of 6 to 11 rows fit. `rows`: those of the first block; 0: the parts stay.
  struct Row {
    const char* what;
    std::string config;
    std::size_t rows;
    std::string layer = "a.fc";
    std::string scale = ".weight_scale";
  };
  const Row table[] = {
      {"no configuration", "", 0},
      {"no configuration, blocks of 128 do not fit", "", 0, "a.fc", ".weight_scale_inv"},
      {"one group", groups({{R"("Linear")", "[8,8]"}}), 8},
      {"a text", groups({{R"("Linear")", R"("8x8")"}}), 8},
      {"texts that are no sizes", groups({{R"("Linear")", R"("8x")"}}), 0},
      {"one size", groups({{R"("Linear")", R"("8")"}}), 0},
      {"another sign between the sizes", groups({{R"("Linear")", R"("8,8")"}}), 0},
      {"64 settings of a group", groups({{R"("Linear")", more_settings(60)}}), 8},
      {"more settings than a group can have", groups({{R"("Linear")", more_settings(61)}}), 0},
      {"one group that does not fit", groups({{R"("Linear")", "[4,8]"}}), 0},
      {"FP8 for the model", R"({"quant_method":"fp8","weight_block_size":[7,8]})", 7, "a.fc", ".weight_scale_inv"},
      {"the second group", groups({{R"("re:.*b\\..*")", "[9,8]"}, {R"("Linear")", "[7,8]"}}), 7},
      {"an expression before a class", groups({{R"("Linear")", "[9,8]"}, {R"("re:.*fc$")", "[7,8]"}}), 7},
      {"a name before an expression", groups({{R"("re:.*fc$")", "[9,8]"}, {R"("a.fc")", "[7,8]"}}), 7},
      {"expressions are sorted", groups({{R"("re:a.f.*")", "[9,8]"}, {R"("re:a.*")", "[7,8]"}}), 7},
      {"an expression matches at the beginning", groups({{R"("re:fc")", "[9,8]"}, {R"("Linear")", "[7,8]"}}), 7},
      {"unknown syntax, one size fits", groups({{R"("re:(?!x).*")", "[3,8]"}, {R"("Linear")", "[7,8]"}}), 7},
      {"unknown syntax, two sizes fit", groups({{R"("re:(?!x).*")", "[9,8]"}, {R"("Linear")", "[7,8]"}}), 0},
      {"unknown syntax of one group", groups({{R"("re:(?!x).*")", "[9,8]"}}), 9},
      {"two classes, one fits", groups({{R"("Linear")", "[4,8]"}, {R"("Embedding")", "[7,8]"}}), 7},
      {"two classes, both fit", groups({{R"("Linear")", "[8,8]"}, {R"("Embedding")", "[7,8]"}}), 0},
      {"a name under another prefix", groups({{R"("model.fc")", "[7,8]"}, {R"("Linear")", "[9,8]"}}), 7,
       "language_model.model.fc"},
  };
  for (const Row& row : table) {
    CAPTURE(row.what);
    Parts parts = fp8(row.layer, 12, 8, 2, 1, row.config, row.scale);
    const Snapshot s = good(join_composites(parts.finish()));
    if (row.rows == 0) {
      CHECK(s.leaf_count() == 2);
      CHECK(s.notes().size() == 1);
      continue;
    }
    CHECK(s.notes().empty());
    REQUIRE(s.leaf_count() == 1);
    const std::vector<float> numbers = numbers_of(s.leaf(0));
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == (i / 8 < row.rows ? 1 : 2));
  }
  // Scales that only one block size fits need no configuration. DeepSeek's blocks have 128 rows and columns.
  Parts four = fp8("l", 8, 4, 4, 1);
  CHECK(numbers_of(good(join_composites(four.finish())).leaf(0))[31] == 4);
  Parts whole = fp8("l", 2, 12, 2, 2);  // groups of a row are whole
  CHECK(numbers_of(good(join_composites(whole.finish())).leaf(0)) ==
        std::vector<float>{1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4});
  Parts deepseek = fp8("l", 192, 130, 2, 2, {}, ".weight_scale_inv");
  const std::vector<float> numbers = numbers_of(good(join_composites(deepseek.finish())).leaf(0));
  CHECK(numbers[127 * 130 + 127] == 1);
  CHECK(numbers[127 * 130 + 128] == 2);
  CHECK(numbers[128 * 130] == 3);
}

TEST_CASE("composites: a configuration in that of a model's text part") {
  const TempDir dir;
  Parts parts = fp8("fc", 12, 8, 2, 1);
  good(save(parts.finish(), dir / "model.safetensors"));
  const std::string fp8_7 = R"({"quant_method":"fp8","weight_block_size":[7,8]})";
  const std::pair<std::string, std::size_t> rows[] = {
      {R"({"quantization_config":)" + fp8_7 + "}", 7},
      {R"({"text_config":{"quantization_config":)" + fp8_7 + "}}", 7},
      {R"({"llm_config":{"a":1,"quantization_config":)" + fp8_7 + "}}", 7},
      {R"({"thinker_config":{"text_config":{"quantization_config":)" + fp8_7 + "}}}", 7},
      {R"({"a":{"quantization_config":)" + fp8_7 + R"(},"b":{"quantization_config":)" + fp8_7 + "}}", 7},
      {R"({"a":{"quantization_config":)" + fp8_7 +
           R"(},"b":{"quantization_config":{"quant_method":"fp8","weight_block_size":[8,8]}}})",
       0},
  };
  for (const auto& row : rows) {  // clang 14 captures no structured bindings
    const std::string& config = row.first;
    const std::size_t first = row.second;
    CAPTURE(config);
    std::ofstream(dir / "config.json") << config;
    for (const std::string& path : {dir.path(), dir / "model.safetensors"}) {
      CAPTURE(path);
      const Snapshot s = good(stele::open(path));
      REQUIRE(s.leaf_count() == (first == 0 ? 2 : 1));
      if (first == 0) continue;
      const std::vector<float> numbers = numbers_of(s.leaf(0));
      CHECK(numbers[first * 8 - 1] == 1);
      CHECK(numbers[first * 8] == 2);
    }
  }
}

namespace {

/// GPTQ's parts of a layer with 32 rows and 64 columns: codes 1, and this zero point and scale 1 everywhere.
void add_gptq(Parts& parts, const std::string& layer, unsigned bits, std::uint64_t groups, unsigned zero,
              bool g_idx = false) {
  const auto words = [&](unsigned code) {
    std::vector<std::int32_t> all(bits);  // of 32 codes
    for (unsigned i = 0; i < 32 * bits; ++i) {
      if ((code >> i % bits & 1U) != 0)
        all[i / 32] = static_cast<std::int32_t>(static_cast<std::uint32_t>(all[i / 32]) | 1U << i % 32);
    }
    return all;
  };
  std::vector<std::int32_t> codes, zeros, columns;
  for (unsigned line = 0; line < 2 * bits; ++line) codes.insert(codes.end(), 32, words(1)[line % bits]);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const auto row = words(zero);
    zeros.insert(zeros.end(), row.begin(), row.end());
  }
  for (std::int32_t i = 0; i < 64; ++i) columns.push_back(i / (64 / static_cast<std::int32_t>(groups)));
  parts.add<std::int32_t>(layer + ".qweight", DType::i32, {2 * bits, 32}, codes)
      .add<std::int32_t>(layer + ".qzeros", DType::i32, {groups, bits}, zeros)
      .add<float>(layer + ".scales", DType::f32, {groups, 32}, std::vector<float>(groups * 32, 1));
  if (g_idx) parts.add<std::int32_t>(layer + ".g_idx", DType::i32, {64}, columns);
}

}  // namespace

TEST_CASE("composites: the configuration decides whether GPTQ's zero points are stored less one") {
  struct Row {
    std::string config;
    unsigned zero;
    float first;  // 1 - zero point; 0: the parts stay
  };
  const std::string gptq = R"({"quant_method":"gptq","bits":4,)",
                    auto_round = R"({"quant_method":"auto-round","bits":4,)";
  const Row table[] = {
      {gptq + R"("sym":false})", 5, -5},
      {gptq + R"("checkpoint_format":"gptq","sym":false})", 5, -5},
      {gptq + R"("checkpoint_format":"gptq_v2"})", 5, -4},
      {gptq + R"("format":"gptq_v2"})", 5, -4},
      {gptq + R"("checkpoint_format":"other"})", 5, 0},
      {R"({"bits":4,"group_size":32})", 5, -5},  // AutoGPTQ's quantize_config.json
      {auto_round + R"("packing_format":"auto_round"})", 5, -4},
      {auto_round + R"("packing_format":"auto_round:gptqmodel"})", 5, -4},
      {auto_round + R"("packing_format":"auto_round:auto_gptq"})", 5, -5},
      {auto_round + R"("packing_format":"auto_round:auto_awq"})", 5, 0},
      {auto_round + R"("packing_format":"other"})", 5, 0},
      {R"({"quant_method":"intel/auto-round","bits":4,"backend":"auto_round:exllamav2"})", 5, -4},  // before 0.5
      {R"({"quant_method":"intel/auto-round","bits":4,"backend":"auto_round:gptq:exllamav2"})", 5, -5},
      {R"({"quant_method":"auto-round","bits":4})", 5, 0},
      {"", 5, 0},   // nothing says it
      {"", 7, -7},  // but a symmetric model's zero points are the middle of the codes
      {"", 8, -7},
      {gptq + R"("checkpoint_format":"gptq","sym":true})", 7, -7},
      {gptq + R"("checkpoint_format":"gptq","sym":true})", 8, 0},  // vllm#38966
      {gptq + R"("checkpoint_format":"gptq_v2","sym":true})", 8, -7},
      {gptq + R"("checkpoint_format":"gptq_v2","sym":true})", 7, 0},
      {gptq + R"("checkpoint_format":"gptq","sym":false})", 8, -8},
  };
  for (const Row& row : table) {
    CAPTURE(row.config);
    CAPTURE(row.zero);
    Parts parts;
    add_gptq(parts, "l", 4, 2, row.zero);
    if (!row.config.empty()) parts.config(row.config);
    const Snapshot s = good(join_composites(parts.finish()));
    CHECK(s.notes().size() == (row.first == 0 ? 1 : 0));
    REQUIRE(s.leaf_count() == (row.first == 0 ? 3 : 1));
    if (row.first != 0) CHECK(numbers_of(s.leaf(0)) == std::vector<float>(32 * 64, row.first));
  }
}

TEST_CASE("composites: layers of GPTQ and auto-round with settings of their own") {
  struct Row {
    std::string config;
    std::string bits;  // of the layers a.0, a.1 and b.0, whose codes have 4, 8 and 2 bits; '-': the parts stay
  };
  const std::string gptq = R"({"quant_method":"gptq","bits":4,"group_size":32,"sym":false,"dynamic":)",
                    round = R"({"quant_method":"auto-round","packing_format":"auto_round","bits":4,"group_size":32,)";
  const Row table[] = {
      {gptq + "{}}", "4--"},
      {gptq + R"({"+:.*1$":{"bits":8},"b\\.0":{"bits":2,"group_size":-1}}})", "482"},
      {gptq + R"({"+:a\\.1":{"bits":8},"-:b.*":{"bits":2},"+:b.*":{"bits":2,"group_size":64}}})", "48-"},
      {gptq + R"({"+:.*":{"bits":8}}})", "-8-"},
      {gptq + R"({"+:(?=a).*1":{"bits":8},"+:b":{"bits":2,"group_size":64}}})", "482"},  // the shapes decide
      {gptq + R"({"+:1":{"bits":8}}})", "4--"},
      {round + R"("extra_config":{"a.1":{"bits":8},"b.0":{"bits":2,"group_size":64}}})", "482"},
      {round + R"("extra_config":{"1$":{"bits":8},"b":{"bits":2,"group_size":64}}})", "482"},
      {round + R"("extra_config":{"a.1":{"bits":8},"a.":{"bits":4},"b.0":{"bits":2,"group_size":64}}})", "482"},
      {round + R"("extra_config":{"model.a.1":{"bits":8},"model.b.0":{"bits":2,"group_size":64}}})", "482"},
      {R"({"quant_method":"gptq","checkpoint_format":"gptq_v2"})", "482"},  // only shapes
  };
  for (const Row& row : table) {
    CAPTURE(row.config);
    Parts parts;
    add_gptq(parts, "a.0", 4, 2, 3);
    add_gptq(parts, "a.1", 8, 2, 3);
    add_gptq(parts, "b.0", 2, 1, 3);
    parts.config(row.config);
    const Snapshot s = good(join_composites(parts.finish()));
    std::string found;
    for (const char* const layer : {"a.0", "a.1", "b.0"}) {
      const auto leaf = s.find(std::string(layer) + ".weight");
      found += leaf ? std::to_string(composite(*leaf)->bits) : "-";
    }
    CHECK(found == row.bits);
    CHECK(s.notes().size() == static_cast<std::size_t>(std::count(found.begin(), found.end(), '-')));
  }
}

TEST_CASE("composites: MLX's settings of layers under other prefixes") {
  // 32 words and 4 groups: 8 bits in groups of 32, or 4 bits in groups of 64.
  struct Row {
    std::string layer, own;
    std::uint64_t columns;  // 0: the parts stay
  };
  const Row table[] = {
      {"language_model.model.layers.0.b", "language_model.model.layers.0.b", 128},
      {"language_model.model.layers.0.b", "model.language_model.layers.0.b", 128},
      {"model.layers.0.b", "layers.0.b", 128},
      {"lm_head", "language_model.lm_head", 128},
      {"model.layers.0.b", "model.layers.1.b", 256},
      {"model.layers.0.b", "vision_tower.layers.0.b", 0},  // perhaps of another layer
  };
  for (const Row& row : table) {
    CAPTURE(row.layer);
    CAPTURE(row.own);
    Parts parts;
    parts.add<std::uint32_t>(row.layer + ".weight", DType::u32, {1, 32}, std::vector<std::uint32_t>(32, 0))
        .add<float>(row.layer + ".scales", DType::f32, {1, 4}, {1, 1, 1, 1})
        .add<float>(row.layer + ".biases", DType::f32, {1, 4}, {1, 2, 3, 4})
        .config(R"({"group_size":64,"bits":4,")" + row.own + R"(":{"group_size":32,"bits":8}})");
    const Snapshot s = good(join_composites(parts.finish()));
    CHECK(s.notes().size() == (row.columns == 0 ? 1 : 0));
    REQUIRE(s.leaf_count() == (row.columns == 0 ? 3 : 1));
    if (row.columns != 0) CHECK(s.leaf(0).shape()[1] == row.columns);
  }
}

TEST_CASE("composites: bitsandbytes' layouts for GPUs stay parts") {
  for (const unsigned format : {0U, 1U, 2U, 3U, 4U, 255U}) {
    CAPTURE(format);
    Parts parts;
    parts.add<std::int8_t>("l.weight", DType::i8, {2, 2}, {1, 2, 3, 4})
        .add<float>("l.SCB", DType::f32, {2}, {127, 254})
        .add<std::uint8_t>("l.weight_format", DType::u8, {}, {static_cast<std::uint8_t>(format)});
    const Snapshot s = good(join_composites(parts.finish()));
    CHECK(s.leaf_count() == (format == 0 ? 1 : 3));
    CHECK(s.notes().size() == (format == 0 ? 0 : 1));
  }
}

TEST_CASE("composites: quantized weights of Conv1D have the orientation of the model") {
  const auto weight = [](const std::string& layer, const Value& config) {
    Parts parts;
    parts.add<std::int8_t>(layer + ".weight", DType::i8, {2, 3}, {1, 2, 3, 4, 5, 6})
        .add<float>(layer + ".SCB", DType::f32, {2}, {127, 127});
    return good(join_composites(parts.finish(), config));
  };
  const std::vector<float> rows{1, 2, 3, 4, 5, 6}, columns{1, 4, 2, 5, 3, 6};
  const auto numbers = [](const Snapshot& s) {
    std::vector<float> all = numbers_of(s.leaf(0));
    for (float& x : all) x = std::round(x);
    return all;
  };
  const auto config = [](const std::string& type) {
    return good(parse_json(R"({"model_type":")" + type + R"(","quantization_config":{"load_in_8bit":true}})"));
  };
  for (const char* const type : {"gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "jais"}) {
    CAPTURE(type);
    const Snapshot s = weight("h.0.mlp.c_fc", config(type));
    CHECK(s.leaf(0).shape()[0] == 3);
    CHECK(numbers(s) == columns);
    CHECK(numbers(weight("lm_head", config(type))) == rows);
  }
  CHECK(numbers(weight("h.0.attn.c_attn", config("gpt_bigcode"))) == rows);
  CHECK(
      numbers(weight("h.0.attn.c_attn",
                     good(parse_json(R"({"model_type":"vision-encoder-decoder","decoder":{"model_type":"gpt2"}})")))) ==
      columns);
  const Snapshot open = weight("h.0.attn.c_attn", Value());  // Linear in GPT-BigCode
  CHECK(open.leaf_count() == 2);
  CHECK(open.notes().size() == 1);

  // In bands, whose pieces are whole units of 64 bytes.
  constexpr std::size_t outputs = 50, inputs = 50001;
  Parts large;
  std::vector<std::int8_t> codes(outputs * inputs);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int8_t>(i * 7919 >> 3);
  large.add<std::int8_t>("c_fc.weight", DType::i8, {outputs, inputs}, codes)
      .add<float>("c_fc.SCB", DType::f32, {outputs}, std::vector<float>(outputs, 127));
  const LeafView leaf = good(join_composites(large.finish(), config("gpt2"))).leaf(0);
  struct Check final : PieceSink {
    std::vector<float> all;
    bool whole = true, good = true;
    Status piece(std::span<const std::byte> bytes) override {
      good = good && whole;
      whole = bytes.size() % 64 == 0;
      all.resize(all.size() + bytes.size() / sizeof(float));
      std::memcpy(all.data() + all.size() - bytes.size() / sizeof(float), bytes.data(), bytes.size());
      return {};
    }
  } check;
  ReadContext context;
  good(leaf.stream(check, context));
  CHECK(check.good);
  REQUIRE(check.all.size() == codes.size());
  bool same = true;
  for (std::size_t i = 0; i < codes.size(); ++i)
    same = same && std::round(check.all[i]) == codes[i % outputs * inputs + i / outputs];
  CHECK(same);
  std::vector<float> part(1000);  // from the middle of a row, over the border of two bands
  const std::size_t first = std::size_t{2} << 20;
  good(leaf.read((first - 500) * sizeof(float), std::as_writable_bytes(std::span(part))));
  CHECK(std::equal(part.begin(), part.end(), check.all.begin() + first - 500));

  // The orientation goes through every file; parts stay as they are.
  const TempDir dir;
  const Snapshot model = opened("bnb_gpt2_int8");
  const std::string name = "transformer.h.0.attn.c_proj.weight";
  const std::vector<float> expected = numbers_of(*model.find(name));
  for (const char* const file : {"m.stele", "m.safetensors", "m.pt", "m.npz", "hub"}) {
    CAPTURE(file);
    const std::string path = dir / file;
    if (std::string_view(file) == "hub") {
      good(HubRecorder<>().save(good(stele::open(dir / "m.stele")), path));
    } else {
      good(save(model, path));
    }
    const Snapshot again = good(stele::open(path));
    REQUIRE(again.find(name));
    CHECK(composite(*again.find(name)));
    CHECK(equal(numbers_of(*again.find(name)), expected));
  }
  const Snapshot floats = good(dequantize(model));
  CHECK_FALSE(floats.metadata().contains("model_type"));
  CHECK(equal(numbers_of(*floats.find(name)), expected));
}

TEST_CASE("composites: names, filters and other steps") {
  const Snapshot snapshot = opened("awq");
  const Snapshot renamed = good(rename(snapshot, std::vector<Rename>{{"^model\\.", "m."}}));
  const Snapshot parts = good(split_composites(renamed));
  CHECK(parts.find("m.layers.0.self_attn.k_proj.qweight"));
  const Snapshot again = good(join_composites(parts));
  CHECK(equal(numbers_of(*again.find("m.layers.0.self_attn.k_proj.weight")),
              numbers_of(*snapshot.find("model.layers.0.self_attn.k_proj.weight"))));
  // A step that changes the numbers decodes.
  const Snapshot floats = good(dequantize(snapshot));
  CHECK(!composite(*floats.find("model.layers.0.self_attn.k_proj.weight")));
  const Snapshot half = with_precision(snapshot, DType::bf16);
  CHECK(half.find("model.layers.0.self_attn.k_proj.weight")->dtype() == DType::bf16);
}

TEST_CASE("composites: the weights of quantized ONNX models") {
  const TempDir dir;
  const std::string path = test_data("onnx") + "/run_quantized_qdq.onnx";
  const Snapshot model = good(stele::open(path));
  const Snapshot parts = good(split_composites(model));
  for (const char* const name : {"c1.w", "c2.w", "fc.w", "out.w"}) {
    CAPTURE(name);
    REQUIRE(model.find(name));
    const LeafView weight = *model.find(name);
    REQUIRE(composite(weight));
    CHECK(composite(weight)->scheme == "linear");
    CHECK(composite(weight)->parts.size() == 3);
    const LeafView codes = *parts.find(std::string(name) + "_quantized"),
                   scales = *parts.find(std::string(name) + "_scale");
    std::vector<std::int8_t> code(codes.size());
    std::vector<float> scale(scales.size());
    good(codes.read(0, std::as_writable_bytes(std::span(code))));
    good(scales.read(0, std::as_writable_bytes(std::span(scale))));
    // Convolutions have a scale for each index of axis 0, matrices of axis 1.
    const bool first = weight.shape().size() == 4;
    const std::size_t inner = code.size() / weight.shape()[0];
    std::vector<float> expected(code.size());
    for (std::size_t i = 0; i < code.size(); ++i) {
      expected[i] = static_cast<float>(code[i]) * scale[scale.size() == 1 ? 0 : first ? i / inner : i % inner];
    }
    CHECK(equal(numbers_of(weight), expected));
  }
  // Floats in formats without the graph; the parts in the model itself.
  good(save(model, dir.path() + "/m.safetensors", {.allow_loss = true}));
  CHECK(good(stele::open(dir.path() + "/m.safetensors")).find("c1.w")->dtype() == DType::f32);
  const OnnxFormat into(OnnxOptions{.model = path});
  SaveOptions options;
  options.format = &into;
  good(save(model, dir.path() + "/m.onnx", options));
  CHECK(composite(*good(stele::open(dir.path() + "/m.onnx")).find("c2.w")));
  CHECK(good(split_composites(good(stele::open(dir.path() + "/m.onnx")))).leaf_count() == parts.leaf_count());
}

}  // namespace composites_test
