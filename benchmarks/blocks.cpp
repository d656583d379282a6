// Measures the codecs of quantized blocks on one core: bytes of f32 per second, and the time relative to a copy of the
// same bytes. The f32 numbers fill 256 KiB (a piece in the second-level cache, as when a file is read) or 64 MiB.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "stele/precision/blocks.hpp"

namespace {

using stele::DType;

std::vector<float> numbers(std::size_t bytes) {
  std::vector<float> x(bytes / sizeof(float));
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 0.02F);
  for (float& v : x) v = normal(engine);
  return x;
}

/// Returns the minimum time in seconds of a few copies of `bytes` bytes.
double copy_seconds(std::size_t bytes) {
  static std::map<std::size_t, double> known;
  double& min_seconds = known[bytes];
  if (min_seconds != 0) return min_seconds;
  const std::vector<float> from = numbers(bytes);
  std::vector<float> to(from.size());
  const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{64} << 20) / bytes);
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < repeats; ++i) {
      std::memcpy(to.data(), from.data(), bytes);
      benchmark::ClobberMemory();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double one = seconds.count() / static_cast<double>(repeats);
    min_seconds = round == 0 ? one : std::min(min_seconds, one);
  }
  return min_seconds;
}

template <DType kType, bool kDecode>
void codec(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<float> x = numbers(bytes);
  const std::size_t count = x.size() / stele::block_size(kType).elements;
  std::vector<std::byte> blocks(count * stele::block_size(kType).bytes);
  stele::encode_blocks(kType, x.data(), blocks.data(), count);
  const double copy = copy_seconds(bytes);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    if constexpr (kDecode) {
      stele::decode_blocks(kType, blocks.data(), x.data(), count);
    } else {
      benchmark::DoNotOptimize(stele::encode_blocks(kType, x.data(), blocks.data(), count));
    }
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
  state.counters["of_copy"] = seconds.count() / static_cast<double>(state.iterations()) / copy;
}

template <DType kType>
void decode(benchmark::State& state) {
  codec<kType, true>(state);
}
template <DType kType>
void encode(benchmark::State& state) {
  codec<kType, false>(state);
}

void both_sizes(benchmark::internal::Benchmark* b) { b->Arg(256 << 10)->Arg(64 << 20)->Unit(benchmark::kMicrosecond); }

BENCHMARK(decode<DType::q8_0>)->Name("decode q8_0")->Apply(both_sizes);
BENCHMARK(decode<DType::q4_k>)->Name("decode q4_K")->Apply(both_sizes);
BENCHMARK(encode<DType::q8_0>)->Name("encode q8_0")->Apply(both_sizes);
BENCHMARK(encode<DType::q4_k>)->Name("encode q4_K")->Apply(both_sizes);

}  // namespace

BENCHMARK_MAIN();
