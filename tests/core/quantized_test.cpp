// Fields of blocks: what a file has is what the field has, byte by byte.
#include <stele/quantize.hpp>
#include <stele/quantized.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/stele_writer.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace quantized_test {

using namespace stele_test;
using stele::BlockTensor;
using stele::DType;
using stele::Errc;
using stele::Quantized;
using stele::Report;
using stele::Tensor;

namespace {

struct Floats {
  Tensor<float, 2> weight;
  std::vector<float> norm;
};
template <DType Blocks>
struct Engine {
  Quantized<Blocks> weight;
  std::vector<float> norm;
};

Floats floats() {
  Floats m{Tensor<float, 2>({3, 512}), {1, 2}};
  for (std::size_t i = 0; i < m.weight.size(); ++i) m.weight[i] = std::sin(static_cast<float>(i));
  return m;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

BlockTensor encoded(DType dtype) {
  const Floats m = floats();
  return good(BlockTensor::encode(dtype, {3, 512}, m.weight.span()));
}

}  // namespace

TEST_CASE("quantized: blocks go through files as they are") {
  const TempDir dir;
  const Floats wide = floats();
  for (const DType dtype : {DType::q4_k, DType::q8_0, DType::q6_k, DType::f16, DType::f32, DType::f64}) {
    CAPTURE(name(dtype));
    const Engine<DType::none> m{encoded(dtype), {1, 2}};
    for (const char* file : {"m.gguf", "m.stele"}) {
      CAPTURE(file);
      const std::string path = dir / file;
      good(stele::save(m, path));
      CHECK(good(stele::open(path)).find("weight")->dtype() == dtype);
      Report report;
      const auto back = good(stele::load<Engine<DType::none>>(path, {.report = &report}));
      CHECK(report.count(Report::What::applied) == 2);
      CHECK(back.weight.dtype() == dtype);
      CHECK(back.weight.shape() == stele::Shape{3, 512});
      CHECK(text(back.weight.blocks()) == text(m.weight.blocks()));
      CHECK(back.norm == m.norm);
      // In place, over another dtype; as a view; as a record.
      Engine<DType::none> live{encoded(DType::q5_0), {0, 0}};
      good(stele::load_into(live, path));
      CHECK(live.weight.dtype() == dtype);
      CHECK(text(live.weight.blocks()) == text(m.weight.blocks()));
      const auto viewed = good(stele::load<Engine<DType::none>>(path, {.storage = stele::Storage::mmap}));
      CHECK(viewed.weight.is_view());
      CHECK(text(viewed.weight.blocks()) == text(m.weight.blocks()));
      const Quantized<> copy = viewed.weight;
      CHECK_FALSE(copy.is_view());
      const auto record = good(stele::load<stele::Record<Engine<DType::none>>>(path));
      CHECK(text(good(get<"weight">(record).load()).blocks()) == text(m.weight.blocks()));
    }
  }
}

TEST_CASE("quantized: a file that llama.cpp's types make loads into an engine and into floats") {
  const TempDir dir;
  const Floats m = floats();
  good(stele::save(m, dir / "m.gguf", {.precision = stele::BlockPrecision<DType::q4_k>{}}));
  const auto engine = good(stele::load<Engine<DType::q4_k>>(dir / "m.gguf"));
  CHECK(text(engine.weight.blocks()) == text(encoded(DType::q4_k).blocks()));
  const Floats decoded = good(stele::load<Floats>(dir / "m.gguf", {.dequantize = true}));
  const Tensor<float> all = engine.weight.decode();
  std::vector<float> row(512);
  for (std::size_t r = 0; r < 3; ++r) {
    good(engine.weight.decode_row(r, row));
    for (std::size_t c = 0; c < 512; ++c) {
      CHECK(row[c] == decoded.weight(r, c));
      CHECK(all(r, c) == row[c]);
    }
  }
  CHECK(engine.weight.rows() == 3);
  CHECK(engine.weight.row(1).size() == 2 * 144);
}

TEST_CASE("quantized: the writer without a heap writes the same bytes") {
  const Engine<DType::none> m{encoded(DType::q4_k), {1, 2}};
  const stele::Bytes expected = good(stele::BytesRecorder<>().save(m));
  stele::Bytes memory(expected.size());
  std::size_t size = 0;
  REQUIRE(stele::write_to(m, memory.span(), size, stele::detail::hash64).code == Errc::none);
  CHECK(size == expected.size());
  CHECK(text(memory.span()) == text(expected.span()));
}

TEST_CASE("quantized: another dtype is an error before anything changes") {
  const TempDir dir;
  good(stele::save(Engine<DType::none>{encoded(DType::q8_0), {1, 2}}, dir / "m.gguf"));
  stele::Error e = bad(stele::load<Engine<DType::q4_k>>(dir / "m.gguf"));
  CHECK(e.code() == Errc::dtype_mismatch);
  CHECK(e.path() == "weight");
  CHECK(e.expected() == "q4_K");
  CHECK(e.found() == "q8_0");
  CHECK(e.hint().find("stele::Quantized<>") != std::string_view::npos);
  Engine<DType::q4_k> live{encoded(DType::q4_k), {7, 7}};
  CHECK(bad(stele::load_into(live, dir / "m.gguf")).code() == Errc::dtype_mismatch);
  CHECK(live.norm[0] == 7);
  struct Integers {
    Tensor<std::int32_t, 2> weight;
    std::vector<float> norm;
  };
  good(stele::save(Integers{Tensor<std::int32_t, 2>::zeros({3, 512}), {1, 2}}, dir / "i.stele"));
  e = bad(stele::load<Engine<DType::none>>(dir / "i.stele"));
  CHECK(e.code() == Errc::dtype_mismatch);
  CHECK(e.expected() == "blocks or floats");
  // Formats without blocks refuse them.
  CHECK(bad(stele::save(live, dir / "m.safetensors")).code() == Errc::not_representable);
}

TEST_CASE("quantized: unset, shapes and encoding") {
  const TempDir dir;
  good(stele::save(Engine<DType::none>{}, dir / "unset.stele"));
  CHECK_FALSE(Quantized<>().is_set());
  CHECK(Quantized<>().decode().size() == 0);
  CHECK_THROWS_AS(BlockTensor(DType::q4_k, {2, 100}), std::invalid_argument);
  CHECK_THROWS_AS(BlockTensor(DType::i32, {2, 4}), std::invalid_argument);
  CHECK_THROWS_AS(BlockTensor(DType::q8_0, {}), std::invalid_argument);
  CHECK_THROWS_AS(BlockTensor(DType::q8_0, {std::uint64_t{1} << 62, 32}), std::invalid_argument);
  CHECK_THROWS_AS(Quantized<DType::q4_k>(encoded(DType::q8_0)), std::invalid_argument);
  CHECK(BlockTensor(DType::q8_0, {0, 32}).rows() == 0);
  std::vector<float> numbers(64, 1);
  CHECK(bad(BlockTensor::encode(DType::q8_0, {3, 32}, numbers)).code() == Errc::invalid_argument);
  CHECK(bad(BlockTensor::encode(DType::iq2_xxs, {2, 32}, numbers)).code() == Errc::invalid_argument);
  numbers[40] = std::numeric_limits<float>::infinity();
  const stele::Error e = bad(BlockTensor::encode(DType::q8_0, {2, 32}, numbers));
  CHECK(e.code() == Errc::out_of_range);
  CHECK(e.found() == "element 40");
  numbers[40] = 1e30F;
  CHECK(bad(BlockTensor::encode(DType::f16, {2, 32}, numbers)).code() == Errc::out_of_range);
  std::vector<float> row(32);
  const BlockTensor t(DType::q8_0, {2, 32});
  CHECK(bad(t.decode_row(2, row)).code() == Errc::invalid_argument);
  row.resize(31);
  CHECK(bad(t.decode_row(1, row)).code() == Errc::invalid_argument);
}

}  // namespace quantized_test
