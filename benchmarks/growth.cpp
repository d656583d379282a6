// Time per tensor of models with 10^2 to 10^6 tensors of 16 numbers each, which are so small that only the cost per
// tensor is visible. benchmarks/growth.py plots it.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models.hpp"
#include "timing.hpp"

namespace {

const std::string& path() {
  static const Scratch scratch;
  static const std::string name = scratch.file("growth");
  return name;
}

/// Returns the model of the last requested size. Keeps only one model, because the largest takes a quarter of a
/// gigabyte.
const workload::List& model(std::size_t count) {
  static workload::List kept;
  if (kept.tensors.size() != count) {
    kept.tensors.clear();
    kept.tensors.reserve(count);
    for (std::size_t i = 0; i < count; ++i) kept.tensors.push_back(workload::tensor<1>({16}));
  }
  return kept;
}

stele::SaveOptions options() {
  stele::SaveOptions made;
  made.file.durability = stele::Durability::process;
  return made;
}

template <class F>
void per_tensor(benchmark::State& state, std::size_t count, F run) {
  std::vector<double> times;
  run();
  for (auto _ : state) {
    times.push_back(run());
    state.SetIterationTime(times.back() / 1000);
  }
  std::sort(times.begin(), times.end());
  state.counters["ns/tensor"] = times[times.size() / 2] * 1e6 / static_cast<double>(count);
}

template <class Recorder>
void add(const std::string& kind) {
  const Recorder recorder;
  const std::string file = path() + std::string(recorder.format().extension());
  const auto one = [&](const std::string& what, auto run) {
    for (std::size_t count = 100; count <= 1000000; count *= 10) {
      benchmark::RegisterBenchmark((kind + "/" + what + "/" + std::to_string(count)).c_str(),
                                   [=](benchmark::State& state) {
                                     recorder.save(model(count), file, options()).value();
                                     run(state, count);
                                   })
          ->Iterations(static_cast<benchmark::IterationCount>(std::max<std::size_t>(5, 1000000 / count / 10)))
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  };
  one("save", [=](benchmark::State& state, std::size_t count) {
    per_tensor(state, count, [&] {
      std::filesystem::remove(file);  // because replacing a file takes milliseconds
      return milliseconds([&] { return recorder.save(model(count), file, options()).value(); });
    });
  });
  one("open", [=](benchmark::State& state, std::size_t count) {
    per_tensor(state, count, [&] { return milliseconds([&] { return recorder.open(file).value(); }); });
  });
  one("find one", [=](benchmark::State& state, std::size_t count) {
    const stele::Snapshot opened = recorder.open(file).value();
    const std::string name = "tensors." + std::to_string(count - 1);
    per_tensor(state, count, [&] { return milliseconds([&] { return opened.find(name)->size(); }); });
  });
  one("load", [=](benchmark::State& state, std::size_t count) {
    per_tensor(state, count,
               [&] { return milliseconds([&] { return recorder.template load<workload::List>(file).value(); }); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add<stele::BinaryRecorder<>>("binary");
  add<stele::SafetensorsRecorder<>>("safetensors");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
