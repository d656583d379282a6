// Measures the decoding of quantized weights from their parts in memory, and the encoding of floats as such parts, on
// one core: bytes of f32 per second, and the time relative to a copy of the same bytes from piece to piece.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "stele/composite.hpp"

namespace {

using namespace stele;

constexpr std::size_t rows = 4096, columns = 4096;

class Weight {
 public:
  Weight() { builder_.set_flat(); }
  Weight& part(std::string_view name, DType dtype, std::vector<Extent> shape) {
    auto bytes =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(*byte_length(dtype, *element_count(shape))));
    for (std::byte& b : *bytes) b = static_cast<std::byte>(engine_() & 0x77U);  // finite numbers in every dtype
    // Weights of usual size, whose scales fit f16.
    for (std::size_t i = 3; dtype == DType::f32 && i < bytes->size(); i += 4) (*bytes)[i] = std::byte{0x3c};
    return part(name, dtype, std::move(shape), std::move(bytes));
  }
  Weight& text(std::string_view name, const std::string& text) {
    const auto* const first = reinterpret_cast<const std::byte*>(text.data());
    return part(name, DType::u8, {text.size()}, std::make_shared<std::vector<std::byte>>(first, first + text.size()));
  }
  Snapshot joined() { return join_composites(builder_.finish()).value(); }

 private:
  Weight& part(std::string_view name, DType dtype, std::vector<Extent> shape,
               std::shared_ptr<std::vector<std::byte>> bytes) {
    static constexpr LeafOps ops{
        .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
    builder_.keep(bytes);
    builder_.tensor(builder_.intern(name), dtype, shape, bytes->size(), {&ops, bytes->data(), 0});
    return *this;
  }
  SnapshotBuilder builder_;
  std::minstd_rand engine_{1};
};

struct Discard final : PieceSink {
  std::byte sum{};
  Status piece(std::span<const std::byte> bytes) override {
    sum ^= bytes.front();
    return {};
  }
};

/// Streams all leaves; `bytes`: of the f32 that they are made from or to.
void stream(benchmark::State& state, const Snapshot& snapshot, std::uint64_t bytes) {
  std::vector<std::byte> from(ReadContext::piece_size), to(from.size());
  const auto copy_started = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < bytes / from.size(); ++i) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double> copy = std::chrono::steady_clock::now() - copy_started;
  ReadContext context;
  const auto started = std::chrono::steady_clock::now();
  for (auto _ : state) {
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      Discard sink;
      if (auto r = snapshot.leaf(i).stream(sink, context); !r)
        return state.SkipWithError(r.error().to_string().c_str());
      benchmark::DoNotOptimize(sink.sum);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
  state.counters["of_a_copy"] = seconds.count() / static_cast<double>(state.iterations()) / copy.count();
}

void decode(benchmark::State& state, const Snapshot& snapshot) {
  if (snapshot.leaf_count() != 1) return state.SkipWithError("not recognised");
  stream(state, snapshot, snapshot.byte_size());
}

void encode(benchmark::State& state, const char* scheme) {
  Weight floats;
  const Snapshot model = floats.part("l.weight", DType::f32, {rows, columns}).joined();
  const auto quantized = quantize_weights(model, {.name = scheme});
  if (!quantized) return state.SkipWithError("not quantized");
  stream(state, split_composites(*quantized).value(), model.byte_size());
}

void fp8_blocks(benchmark::State& state) {
  decode(state, Weight()
                    .part("l.weight", DType::f8_e4m3fn, {rows, columns})
                    .part("l.weight_scale_inv", DType::f32, {rows / 128, columns / 128})
                    .joined());
}
void gptq_4(benchmark::State& state) {
  decode(state, Weight()
                    .part("l.qweight", DType::i32, {columns / 8, rows})
                    .part("l.qzeros", DType::i32, {columns / 128, rows / 8})
                    .part("l.scales", DType::f16, {columns / 128, rows})
                    .joined());
}
void awq_4(benchmark::State& state) {
  decode(state, Weight()
                    .part("l.qweight", DType::i32, {columns, rows / 8})
                    .part("l.qzeros", DType::i32, {columns / 128, rows / 8})
                    .part("l.scales", DType::f16, {columns / 128, rows})
                    .joined());
}
void nf4(benchmark::State& state) {
  decode(state, Weight()
                    .part("l.weight", DType::u8, {rows * columns / 2, 1})
                    .part("l.weight.absmax", DType::f32, {rows * columns / 64})
                    .part("l.weight.quant_map", DType::f32, {16})
                    .text("l.weight.quant_state.bitsandbytes__nf4", R"({"blocksize":64,"shape":[4096,4096]})")
                    .joined());
}
void mxfp4(benchmark::State& state) {
  decode(state, Weight()
                    .part("l_blocks", DType::u8, {1, rows, columns / 32, 16})
                    .part("l_scales", DType::u8, {1, rows, columns / 32})
                    .joined());
}
void nvfp4(benchmark::State& state) {
  decode(state, Weight()
                    .part("l.weight_packed", DType::u8, {rows, columns / 2})
                    .part("l.weight_scale", DType::f8_e4m3fn, {rows, columns / 16})
                    .joined());
}
void int8_rows(benchmark::State& state) {
  decode(state,
         Weight().part("l.weight", DType::i8, {rows, columns}).part("l.weight_scale", DType::bf16, {rows, 1}).joined());
}
void pack_4(benchmark::State& state) {
  decode(state, Weight()
                    .part("l.weight", DType::u32, {rows, columns / 8})
                    .part("l.scales", DType::bf16, {rows, columns / 64})
                    .part("l.biases", DType::bf16, {rows, columns / 64})
                    .joined());
}

}  // namespace

BENCHMARK(fp8_blocks);
BENCHMARK(gptq_4);
BENCHMARK(awq_4);
BENCHMARK(nf4);
BENCHMARK(mxfp4);
BENCHMARK(nvfp4);
BENCHMARK(int8_rows);
BENCHMARK(pack_4);
BENCHMARK_CAPTURE(encode, fp8, "fp8");
BENCHMARK_CAPTURE(encode, int4, "int4");
BENCHMARK_CAPTURE(encode, int8, "int8");
BENCHMARK_CAPTURE(encode, nvfp4, "nvfp4");
BENCHMARK_CAPTURE(encode, mxfp4, "mxfp4");
BENCHMARK_CAPTURE(encode, mxfp8, "mxfp8");
BENCHMARK_CAPTURE(encode, gptq, "gptq");
BENCHMARK_CAPTURE(encode, awq, "awq");
BENCHMARK_CAPTURE(encode, nf4, "nf4");
BENCHMARK_MAIN();
