// Compressed `.stele`: bytes saved and speed, for numbers like trained weights (a normal distribution), relative to a
// copy of the same bytes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>

#include "stele/stele.hpp"

namespace {

template <class T>
struct Model {
  stele::Tensor<T, 1> weight;
};

/// A model of 64 MB.
template <class T>
const Model<T>& model() {
  static const Model<T> m = [] {
    Model<T> made{stele::Tensor<T, 1>({(std::size_t{64} << 20) / sizeof(T)})};
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(0, 0.02F);
    for (T& x : made.weight) x = T(normal(engine));
    return made;
  }();
  return m;
}

using Packed = stele::MemoryRecorder<stele::CompressedSteleFormat>;

template <class T>
stele::Bytes pack(unsigned threads) {
  stele::SaveOptions options;
  options.threads = threads;
  stele::BufferSink sink;
  Packed().save(model<T>(), sink, options).value();
  return sink.take();
}

void rate(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * (std::int64_t{64} << 20)); }

template <class T>
void save(benchmark::State& state) {
  std::size_t size = 0;
  model<T>();  // created before the clock runs
  for (auto _ : state) size = pack<T>(static_cast<unsigned>(state.range(0))).size();
  rate(state);
  state.counters["saved_%"] = 100 - 100 * static_cast<double>(size) / static_cast<double>(64 << 20);
}

template <class T>
void load(benchmark::State& state) {
  const stele::Bytes bytes = pack<T>(0);
  Model<T> live{stele::Tensor<T, 1>({model<T>().weight.size()})};
  stele::LoadOptions options;
  options.threads = static_cast<unsigned>(state.range(0));
  options.trust_data = true;  // one pass
  for (auto _ : state) Packed().load_into(live, bytes, options).value();
  rate(state);
}

void limit_copy(benchmark::State& state) {
  stele::Bytes to(std::size_t{64} << 20);
  const float* from = model<float>().weight.data();
  for (auto _ : state) {
    std::memcpy(to.data(), from, to.size());
    benchmark::ClobberMemory();
  }
  rate(state);
}

BENCHMARK(limit_copy)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(save<float>)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load<float>)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(save<stele::bfloat16>)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load<stele::bfloat16>)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
