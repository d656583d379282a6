// The core's own costs: snapshots of many leaves, opening, saving and loading, as ratios to limits of the same run.
// The whole goals table against peers is a later work; these figures guard what the design promises.
#include <benchmark/benchmark.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
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

/// 256 MB in 16 tensors.
const Model& large() {
  static const Model model = [] {
    Model m;
    for (int i = 0; i < 16; ++i) m.layers.emplace_back(2048, 2048);
    return m;
  }();
  return model;
}

std::string scratch(const char* name) { return std::filesystem::temp_directory_path() / name; }

stele::SaveOptions quick() {
  stele::SaveOptions options;
  options.file.durability = stele::Durability::process;  // no peer syncs
  return options;
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

// ---- limits ----

template <class M>
void limit_write(benchmark::State& state, const M& model) {
  const stele::Bytes bytes = stele::BytesRecorder<>{}.record(model).value();
  const std::string path = scratch("stele-bench-limit");
  for (auto _ : state) {
    auto sink = stele::file_sink(path, quick().file).value();
    sink->reserve(bytes.size()).value();
    for (std::size_t at = 0; at < bytes.size(); at += 1 << 20) {
      sink->write(bytes.span().subspan(at, std::min<std::size_t>(1 << 20, bytes.size() - at))).value();
    }
    sink->commit().value();
  }
  std::filesystem::remove(path);
}

template <class M>
void limit_read(benchmark::State& state, const M& model) {
  const std::string path = scratch("stele-bench-limit");
  stele::BinaryRecorder<>{}.record(model, path + ".stele", quick()).value();
  for (auto _ : state) {
    const auto source = stele::open_file(path + ".stele").value();
    stele::Bytes bytes(source->size());
    source->read_at(0, bytes.span()).value();
    benchmark::DoNotOptimize(bytes.data());
  }
  std::filesystem::remove(path + ".stele");
}

template <class M>
void limit_copy(benchmark::State& state, const M& model) {
  const stele::Bytes bytes = stele::BytesRecorder<>{}.record(model).value();
  for (auto _ : state) {
    stele::Bytes copy(bytes.size());
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    benchmark::DoNotOptimize(copy.data());
  }
}

// ---- recorders ----

template <class Recorder, class M>
void save(benchmark::State& state, const M& model) {
  const Recorder recorder;
  const std::string path = scratch("stele-bench");
  for (auto _ : state) recorder.record(model, path, quick()).value();
  std::filesystem::remove(path + std::string(recorder.format().extension()));
}

template <class Recorder, class M>
void open(benchmark::State& state, const M& model) {
  const Recorder recorder;
  const std::string path = scratch("stele-bench");
  recorder.record(model, path, quick()).value();
  for (auto _ : state) benchmark::DoNotOptimize(recorder.open(path).value());
  std::filesystem::remove(path + std::string(recorder.format().extension()));
}

template <class Recorder, class M>
void load(benchmark::State& state, const M& model) {
  const Recorder recorder;
  const std::string path = scratch("stele-bench");
  recorder.record(model, path, quick()).value();
  for (auto _ : state) benchmark::DoNotOptimize(recorder.template load_module<M>(path).value());
  std::filesystem::remove(path + std::string(recorder.format().extension()));
}

template <class M>
void to_bytes(benchmark::State& state, const M& model) {
  for (auto _ : state) benchmark::DoNotOptimize(stele::BytesRecorder<>{}.record(model).value());
}

using Binary = stele::BinaryRecorder<>;
using BinaryHalf = stele::BinaryRecorder<stele::HalfPrecision>;
using Safetensors = stele::SafetensorsRecorder<>;

// Each operation stands behind the limit that it is compared with.
template <class M>
void add(const std::string& name, const M& (*model)()) {
  const auto one = [&](const char* what, auto run) {
    benchmark::RegisterBenchmark((name + "/" + what).c_str(), [=](benchmark::State& s) { run(s, model()); })
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.5);
  };
  one("limit_write", limit_write<M>);
  one("save_binary", save<Binary, M>);
  one("save_binary_half", save<BinaryHalf, M>);
  one("save_safetensors", save<Safetensors, M>);
  one("limit_copy", limit_copy<M>);
  one("to_bytes", to_bytes<M>);
  one("limit_read", limit_read<M>);
  one("load_binary", load<Binary, M>);
  one("load_safetensors", load<Safetensors, M>);
  one("open_binary", open<Binary, M>);
  one("open_safetensors", open<Safetensors, M>);
}

}  // namespace

int main(int argc, char** argv) {
  add("many", many);
  add("large", large);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
