// Compares JSON records with cereal's JSON archive, with a copy of the same bytes, and with zlib and zstd alone. 100 MB
// of f32 numbers like trained weights (a normal distribution), to a file and back, with the library's own sinks and
// std::ofstream.
#include <benchmark/benchmark.h>

#include <cereal/archives/json.hpp>
#include <cereal/types/vector.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "stele/stele.hpp"

namespace {

constexpr std::size_t tensors = 10;
constexpr std::size_t elements = 2'500'000;
constexpr std::int64_t bytes = tensors * elements * sizeof(float);

struct Model {
  std::vector<stele::Tensor<float, 1>> weights;
};

const Model& model() {
  static const Model m = [] {
    Model made;
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(0, 0.02F);
    for (std::size_t i = 0; i < tensors; ++i) {
      for (float& x : made.weights.emplace_back(stele::Tensor<float, 1>({elements}))) x = normal(engine);
    }
    return made;
  }();
  return m;
}

/// A file below the working folder, removed at the end.
struct File {
  std::string path;
  explicit File(const std::string& name) : path("bench_json." + name) {}
  ~File() { std::filesystem::remove(path); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

const stele::JsonOptions kinds[] = {
    {.encoding = stele::JsonEncoding::plain},
    {.encoding = stele::JsonEncoding::plain, .numbers_up_to = UINT64_MAX},
    {.encoding = stele::JsonEncoding::zstd},
    {.encoding = stele::JsonEncoding::gzip},
};
constexpr const char* names[] = {"base64", "numbers", "zstd", "gzip"};

stele::JsonRecorder<> recorder(const benchmark::State& state) {
  return stele::JsonRecorder<>(stele::JsonFormat(kinds[state.range(0)]));
}

void finish(benchmark::State& state, const File& file) {
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["file_%"] =
      100 * static_cast<double>(std::filesystem::file_size(file.path)) / static_cast<double>(bytes);
}

void record(const benchmark::State& state, const File& file) {
  stele::SaveOptions options;
  options.file.durability = stele::Durability::process;
  recorder(state).save(model(), file.path, options).value();
}

void save(benchmark::State& state) {
  const File file("json");
  model();  // created before the clock runs
  for (auto _ : state) record(state, file);
  state.SetLabel(names[state.range(0)]);
  finish(state, file);
}

void load(benchmark::State& state) {
  const File file("json");
  record(state, file);
  for (auto _ : state) benchmark::DoNotOptimize(stele::load<Model>(file.path).value());
  state.SetLabel(names[state.range(0)]);
  finish(state, file);
}

void open(benchmark::State& state) {
  const File file("json");
  record(state, file);
  for (auto _ : state) benchmark::DoNotOptimize(stele::open(file.path).value());
  state.SetLabel(names[state.range(0)]);
}

std::vector<std::vector<float>> vectors() {
  std::vector<std::vector<float>> all;
  for (const auto& weight : model().weights) all.emplace_back(weight.begin(), weight.end());
  return all;
}

void write_cereal(const std::vector<std::vector<float>>& all, const std::string& path) {
  std::ofstream stream(path);
  cereal::JSONOutputArchive archive(stream, cereal::JSONOutputArchive::Options::NoIndent());
  archive(all);
}

void save_cereal(benchmark::State& state) {
  const File file("cereal");
  const auto all = vectors();
  for (auto _ : state) write_cereal(all, file.path);
  finish(state, file);
}

void load_cereal(benchmark::State& state) {
  const File file("cereal");
  write_cereal(vectors(), file.path);
  for (auto _ : state) {
    std::ifstream stream(file.path);
    cereal::JSONInputArchive archive(stream);
    std::vector<std::vector<float>> all;
    archive(all);
    benchmark::DoNotOptimize(all);
  }
  finish(state, file);
}

void limit_copy(benchmark::State& state) {
  const auto all = vectors();
  stele::Bytes to(static_cast<std::size_t>(bytes));
  for (auto _ : state) {
    std::byte* at = to.data();
    for (const auto& v : all) at = static_cast<std::byte*>(std::memcpy(at, v.data(), 4 * v.size())) + 4 * v.size();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

BENCHMARK(limit_copy)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(save)->DenseRange(0, 3)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load)->DenseRange(0, 3)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(open)->DenseRange(0, 2, 2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(save_cereal)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load_cereal)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
