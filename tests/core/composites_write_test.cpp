// Weights that are stored in the schemes of quantized checkpoints: what is written opens, with the numbers that the
// report describes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "stele/composite.hpp"
#include "stele/parts.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/any.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace composites_write_test {

namespace {

using namespace stele;
using namespace stele_test;

struct Shape2 {
  std::size_t rows, columns;
};

struct Case {
  const char* scheme;
  double error;  ///< largest, relative to the largest number of a group
  std::vector<Shape2> shapes;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"fp8", 0.04, {{128, 128}, {256, 384}}},
      {"int4", 0.075, {{1, 128}, {3, 256}, {200, 384}}},
      {"int8", 0.0062, {{1, 4}, {7, 100}, {64, 2048}}},
      {"nvfp4", 0.2, {{1, 16}, {5, 48}, {130, 1024}}},
      {"mxfp4", 0.26, {{1, 32}, {5, 96}, {130, 1024}}},
      {"mxfp8", 0.07, {{1, 32}, {5, 96}, {130, 1024}}},
      {"gptq", 0.075, {{8, 128}, {40, 256}, {1024, 4096}}},
      {"awq", 0.075, {{8, 128}, {40, 256}, {1024, 4096}}},
      {"nf4", 0.16, {{1, 1}, {3, 43}, {64, 64}, {100, 1000}}},
  };
  return all;
}

std::vector<float> random_numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

/// A flat snapshot of tensors of f32.
class Floats {
 public:
  Floats() { builder_.set_flat(); }
  Floats& add(std::string_view name, std::vector<Extent> shape, std::vector<float> numbers) {
    auto owner = std::make_shared<std::vector<float>>(std::move(numbers));
    static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) {
      return reinterpret_cast<const std::byte*>(static_cast<const std::vector<float>*>(at)->data());
    }};
    builder_.keep(owner);
    builder_.tensor(builder_.intern(name), DType::f32, shape, owner->size() * sizeof(float), {&ops, owner.get(), 0});
    return *this;
  }
  Snapshot finish() { return builder_.finish(); }

 private:
  SnapshotBuilder builder_;
};

Snapshot matrix(const Shape2& shape, std::vector<float> numbers) {
  return Floats().add("fc.weight", {shape.rows, shape.columns}, std::move(numbers)).finish();
}

std::vector<float> numbers_of(const LeafView& leaf) {
  REQUIRE(leaf.dtype() == DType::f32);
  std::vector<float> numbers(leaf.size());
  good(leaf.read(0, std::as_writable_bytes(std::span(numbers))));
  return numbers;
}

std::string streamed(const LeafView& leaf) {
  struct Copy final : PieceSink {
    std::string bytes;
    Status piece(std::span<const std::byte> piece) override {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return {};
    }
  } copy;
  ReadContext context;
  good(leaf.stream(copy, context));
  return copy.bytes;
}

}  // namespace

TEST_CASE("composites: every scheme is written, and opens with the same numbers") {
  const TempDir dir;
  for (const Case& c : cases()) {
    for (const Shape2& shape : c.shapes) {
      CAPTURE(c.scheme);
      CAPTURE(shape.rows);
      CAPTURE(shape.columns);
      const std::vector<float> numbers = random_numbers(shape.rows * shape.columns, shape.rows);
      const Snapshot floats = matrix(shape, numbers);
      const Snapshot quantized = good(quantize_weights(floats, {.name = c.scheme}));
      CHECK(quantized.notes().empty());
      REQUIRE(quantized.find("fc.weight"));
      const auto info = composite(*quantized.find("fc.weight"));
      REQUIRE(info);
      const std::vector<float> expected = numbers_of(*quantized.find("fc.weight"));

      for (const char* const name : {"m.safetensors", "m.stele", "m.npz", "m.pt"}) {
        CAPTURE(name);
        const std::string path = dir.path() + "/" + name;
        const auto report = save(quantized, path, quick());
        if (!report) {
          CHECK(report.error().code() == Errc::not_representable);
          continue;
        }
        REQUIRE(report->count(Report::What::quantized) == 1);
        const Snapshot again = good(stele::open(path));
        REQUIRE(again.find("fc.weight"));
        REQUIRE(composite(*again.find("fc.weight")));
        CHECK(composite(*again.find("fc.weight"))->bytes == info->bytes);
        const std::vector<float> found = numbers_of(*again.find("fc.weight"));
        CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
      }

      // The error that the report states, and its bound.
      double largest = 0, squares = 0, size = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double difference = std::abs(static_cast<double>(expected[i]) - static_cast<double>(numbers[i]));
        largest = std::max(largest, difference);
        squares += difference * difference;
        size = std::max(size, static_cast<double>(std::abs(numbers[i])));
      }
      CHECK(largest <= c.error * size);
      SaveOptions dry;
      dry.dry_run = true;
      const Report report = good(save(quantized, dir.path() + "/dry.safetensors", dry));
      REQUIRE(report.count(Report::What::quantized) == 1);
      char text[96];
      std::snprintf(text, sizeof text, "largest error %.3g", largest);
      CHECK_MESSAGE(report[0].detail.find(text) != report[0].detail.npos, report[0].detail);
      std::snprintf(text, sizeof text, "root mean square %.3g",
                    std::sqrt(squares / static_cast<double>(numbers.size())));
      CHECK_MESSAGE(report[0].detail.find(text) != report[0].detail.npos, report[0].detail);

      // Pieces of the parts equal the whole.
      const Snapshot parts = good(split_composites(quantized));
      for (std::size_t i = 0; i < parts.leaf_count(); ++i) {
        const LeafView part = parts.leaf(i);
        const std::string whole = streamed(part);
        REQUIRE(whole.size() == part.byte_size());
        const std::size_t element = element_size(part.dtype());
        for (const std::uint64_t begin : {std::uint64_t{0}, part.size() / 3, part.size() - 1}) {
          const std::uint64_t n = std::min<std::uint64_t>(part.size() - begin, 1 + part.size() / 5);
          std::string piece(n * element, '\0');
          good(part.read(begin * element, std::as_writable_bytes(std::span(piece))));
          CHECK(piece == whole.substr(begin * element, n * element));
        }
      }
    }
  }
}

TEST_CASE("composites: numbers of zero, large ones, and ones that are not finite") {
  const TempDir dir;
  for (const Case& c : cases()) {
    CAPTURE(c.scheme);
    const Shape2 shape = c.shapes[1];
    std::vector<float> numbers(shape.rows * shape.columns);
    const auto written = [&] {
      const Snapshot quantized = good(quantize_weights(matrix(shape, numbers), {.name = c.scheme}));
      const std::string path = dir.path() + "/m.safetensors";
      const auto report = save(quantized, path, quick());
      if (!report) return std::pair(report.error().code(), std::vector<float>());
      return std::pair(Errc::none, numbers_of(*good(stele::open(path)).find("fc.weight")));
    };
    CHECK(written().second == numbers);
    numbers[0] = 1e-30F;
    for (const float x : written().second) CHECK(std::abs(x) <= 1e-29F);
    numbers[1] = -3e5F;
    const auto [code, large] = written();
    CHECK(code == Errc::none);
    if (code == Errc::none) CHECK(large[1] == doctest::Approx(-3e5).epsilon(0.15));
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      numbers.back() = bad;
      const auto quantized = quantize_weights(matrix(shape, numbers), {.name = c.scheme});
      if (!quantized) {
        CHECK(quantized.error().code() == Errc::out_of_range);
      } else {
        const auto report = save(*quantized, dir.path() + "/bad.safetensors");
        REQUIRE(!report);
        CHECK(report.error().code() == Errc::out_of_range);
        CHECK(report.error().path() == "fc.weight");
      }
    }
  }
}

TEST_CASE("composites: which weights are quantized") {
  Floats all;
  std::size_t count = 0;
  const auto add = [&](std::string_view name, std::vector<Extent> shape) {
    std::vector<float> numbers(static_cast<std::size_t>(*element_count(shape)));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 3;
    all.add(name, std::move(shape), std::move(numbers));
    ++count;
  };
  add("model.embed_tokens.weight", {16, 128});
  add("lm_head.weight", {16, 128});
  add("model.layers.0.mlp.up_proj.weight", {16, 128});
  add("model.layers.0.mlp.gate_proj.weight", {16, 128});
  add("model.layers.0.mlp.gate.weight", {16, 128});
  add("model.layers.0.mlp.odd.weight", {16, 100});
  add("model.layers.0.mlp.up_proj.bias", {16});
  add("model.norm.weight", {128});
  add("conv.weight", {16, 16, 128});
  const Snapshot floats = all.finish();
  Report report;
  const Snapshot quantized = good(quantize_weights(floats, {.name = "int4"}, &report));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < quantized.leaf_count(); ++i) {
    if (composite(quantized.leaf(i))) names.push_back(quantized.leaf(i).path());
  }
  CHECK(names == std::vector<std::string>{"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"});
  CHECK(quantized.leaf_count() == count);
  REQUIRE(report.size() == 1);
  CHECK(report[0].what == Report::What::kept);
  CHECK(report[0].path == "model.layers.0.mlp.odd.weight");
  CHECK(report[0].detail == "not int4: rows of 100 elements, no multiple of 128");
  const Value config = good(parse_json(quantized.metadata().at("quantization_config")));
  CHECK(config.at("quant_method").to<std::string>().value() == "compressed-tensors");
  const auto ignored = config.at("ignore").to<std::vector<std::string>>().value();
  CHECK(std::find(ignored.begin(), ignored.end(), "model.layers.0.mlp.odd") != ignored.end());
  CHECK(std::find(ignored.begin(), ignored.end(), "lm_head") != ignored.end());

  const auto chosen = good(quantize_weights(floats, {.name = "int4", .patterns = {"*up*"}, .except = {}}));
  CHECK(composite(*chosen.find("model.layers.0.mlp.up_proj.weight")));
  CHECK(!composite(*chosen.find("model.layers.0.mlp.gate_proj.weight")));
  const auto code = [&](const WeightScheme& scheme) {
    const auto made = quantize_weights(floats, scheme);
    return made ? Errc::none : made.error().code();
  };
  CHECK(code({.name = "int5"}) == Errc::invalid_argument);
  CHECK(code({.name = "int4", .group = 48}) == Errc::invalid_argument);
  CHECK(code({.name = "nvfp4", .group = 32}) == Errc::invalid_argument);
  CHECK(code({.name = "int4", .group = 32}) == Errc::none);
}

TEST_CASE("composites: from one scheme to another") {
  const TempDir dir;
  const Shape2 shape{256, 512};
  const std::vector<float> numbers = random_numbers(shape.rows * shape.columns, 9);
  for (const Case& from : cases()) {
    const std::string path = dir.path() + "/from.safetensors";
    good(save(good(quantize_weights(matrix(shape, numbers), {.name = from.scheme})), path));
    const Snapshot first = good(stele::open(path));
    const std::vector<float> before = numbers_of(*first.find("fc.weight"));
    for (const Case& to : cases()) {
      CAPTURE(from.scheme);
      CAPTURE(to.scheme);
      const std::string next = dir.path() + "/to.safetensors";
      const Report report = good(save(good(quantize_weights(first, {.name = to.scheme})), next));
      CHECK(report.count(Report::What::quantized) == 1);
      const Snapshot second = good(stele::open(next));
      const std::vector<float> after = numbers_of(*second.find("fc.weight"));
      double largest = 0, size = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        largest = std::max(largest, static_cast<double>(std::abs(after[i] - before[i])));
        size = std::max(size, static_cast<double>(std::abs(before[i])));
      }
      CHECK(largest <= 1.05 * to.error * size);
    }
  }
}

namespace {

template <class Layer>
struct Engine {
  Layer fc;
  STELE_MODULE(Engine, fc)
};

void write_quantized(const std::string& path, const char* scheme) {
  const Snapshot floats = matrix({256, 512}, random_numbers(256 * 512, 3));
  good(save(good(quantize_weights(floats, {.name = scheme})), path));
}

/// Loads the parts of a weight, decodes them, and saves them again.
template <class Layer>
void check_parts(const char* scheme) {
  CAPTURE(scheme);
  const TempDir dir;
  const std::string path = dir / "m.safetensors";
  write_quantized(path, scheme);
  const std::vector<float> expected = numbers_of(*good(stele::open(path)).find("fc.weight"));
  for (const Storage storage : {Storage::owned, Storage::mmap}) {
    LoadOptions options;
    options.storage = storage;
    const auto engine = good(load<Engine<Layer>>(path, options));
    const Tensor<float, 2> numbers = good(decode(engine.fc));
    REQUIRE(numbers.size() == expected.size());
    CHECK(std::memcmp(numbers.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    const std::string again = dir / "again.safetensors";
    good(save(engine, again, quick()));
    CHECK(numbers_of(*good(stele::open(again)).find("fc.weight")) == expected);
  }
}

}  // namespace

TEST_CASE("composites: an engine's layers have the parts") {
  check_parts<parts::Fp8Blocks>("fp8");
  check_parts<parts::PackedIntegers<float>>("int4");
  check_parts<parts::PackedIntegers<float>>("int8");
  check_parts<parts::Nvfp4<>>("nvfp4");
  check_parts<parts::Mxfp4<>>("mxfp4");
  check_parts<parts::Gptq>("gptq");
  check_parts<parts::Awq>("awq");
  const auto none = decode(parts::Awq{});
  REQUIRE(!none);
  CHECK(none.error().code() == Errc::malformed);
}

TEST_CASE("composites: a weight that does not fit the next scheme becomes floats of the model's dtype") {
  const TempDir dir;
  Floats all;
  all.add("fits.weight", {128, 128}, random_numbers(128 * 128, 1));
  all.add("odd.weight", {16, 192}, random_numbers(16 * 192, 2));
  all.add("fits.bias", {128}, random_numbers(128, 3));
  SaveOptions f16;
  f16.precision = DType::f16;
  good(save(all.finish(), dir / "f16.safetensors", f16));
  const Snapshot first =
      good(quantize_weights(good(stele::open(dir / "f16.safetensors")), {.name = "int4", .group = 64}));
  REQUIRE(composite(*first.find("odd.weight")));
  Report report;
  for (const char* const scheme : {"fp8", "gptq"}) {
    const Snapshot second = good(quantize_weights(first, {.name = scheme}, &report));
    CHECK(composite(*second.find("fits.weight")));
    CHECK(!composite(*second.find("odd.weight")));
    CHECK(second.find("odd.weight")->dtype() == DType::f16);
    CHECK(!second.find("odd.weight_packed"));
    const Value config = good(parse_json(second.metadata().at("quantization_config")));
    if (const Value* const kept = config.find("dynamic")) CHECK(kept->find("-:^odd$") != nullptr);
  }
  CHECK(report.count(Report::What::converted) == 2);
  // The scales have the model's dtype, though the weights are decoded as f32.
  const Snapshot parts = good(split_composites(good(quantize_weights(first, {.name = "int8"}))));
  CHECK(parts.find("fits.weight_scale")->dtype() == DType::f16);

  const Snapshot turned = Floats()
                              .add("c_attn.weight", {128, 384}, random_numbers(128 * 384, 1))
                              .add("c_attn.bias", {384}, random_numbers(384, 2))
                              .finish();
  const auto refused = quantize_weights(turned, {.name = "int4"});
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::unsupported);
  CHECK(refused.error().path() == "c_attn.weight");
}

}  // namespace composites_write_test
