// Measures the cost of a leaf before any of its bytes move: nanoseconds per leaf of snapshots, typed records and
// transforms.
#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "stele/stele.hpp"

namespace {

class Linear {
 public:
  Linear() = default;
  Linear(std::size_t in, std::size_t out)
      : weight(stele::Tensor<float, 2>::filled({out, in}, 0.5F)), bias(stele::Tensor<float, 1>::filled({out}, 0.25F)) {}

 private:
  stele::Param<stele::Tensor<float, 2>> weight;
  std::optional<stele::Param<stele::Tensor<float, 1>>> bias;
  STELE_MODULE(Linear, weight, bias)
};

struct Model {
  std::vector<Linear> layers;
};

/// 20,000 leaves of 16 to 1024 floats: 43 MB of many small tensors.
const Model& many() {
  static const Model model = [] {
    Model m;
    for (int i = 0; i < 10000; ++i) m.layers.emplace_back(32, 32);
    return m;
  }();
  return model;
}

void per_leaf(benchmark::State& state) {
  state.counters["ns/leaf"] =
      benchmark::Counter(20000e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void snapshot_20000_leaves(benchmark::State& state) {
  const Model& model = many();
  for (auto _ : state) benchmark::DoNotOptimize(stele::snapshot_of(model).value());
  per_leaf(state);
}
BENCHMARK(snapshot_20000_leaves)->Unit(benchmark::kMillisecond);

void record_20000_leaves(benchmark::State& state) {
  const Model& model = many();
  for (auto _ : state) benchmark::DoNotOptimize(stele::record_of(model).value());
  per_leaf(state);
}
BENCHMARK(record_20000_leaves)->Unit(benchmark::kMillisecond);

void precision_of_20000_leaves(benchmark::State& state) {
  const stele::Snapshot snapshot = stele::snapshot_of(many()).value();
  for (auto _ : state) benchmark::DoNotOptimize(stele::with_precision(snapshot, {stele::DType::f16}));
  per_leaf(state);
}
BENCHMARK(precision_of_20000_leaves)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
