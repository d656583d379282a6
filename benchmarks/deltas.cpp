// Measures deltas of files, on the machine's threads: the size relative to the new version, and the times to make one
// and to apply it to a new file, relative to a conversion that copies the new version to a file in the same run.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "stele/delta.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/binary.hpp"

namespace {

using namespace stele;

constexpr std::size_t tensors = 16, elements = std::size_t{4096} * 2048;

/// Two versions of a model as files; `next` has the weight of a step after `w`.
struct Versions {
  std::string folder = (std::filesystem::temp_directory_path() / "stele-bench-deltas").string();
  std::string base = folder + "/base.safetensors", next = folder + "/next.safetensors", delta = folder + "/d.stele",
              out = folder + "/out.safetensors";

  template <class T, class Step>
  void write(std::size_t count, const Step& step) {
    std::filesystem::create_directories(folder);
    SnapshotBuilder old, now;
    std::minstd_rand random(1);
    std::vector<std::vector<T>> all;
    all.reserve(2 * count);  // the references below
    for (std::size_t t = 0; t < count; ++t) {
      std::vector<T>&a = all.emplace_back(elements), &b = all.emplace_back(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        const double u = (static_cast<double>(random()) + 1) / 2147483648.0, v = static_cast<double>(random());
        const float w = 0.02F * static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(v * 2.9e-9));
        a[i] = T(w);
        b[i] = T(step(w, t, random));
      }
    }
    static constexpr LeafOps ops{
        .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
    for (SnapshotBuilder* builder : {&old, &now}) {
      builder->set_flat();
      for (std::size_t t = 0; t < count; ++t) {
        const Extent size = elements;
        const auto& data = all[2 * t + (builder == &now ? 1 : 0)];
        builder->tensor(builder->intern("l" + std::to_string(t)), std::is_same_v<T, float> ? DType::f32 : DType::bf16,
                        std::span(&size, 1), elements * sizeof(T), {&ops, data.data(), 0});
      }
    }
    save(old.finish(), base).value();
    save(now.finish(), next).value();
  }
  ~Versions() { std::filesystem::remove_all(folder); }
};

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

SaveOptions quick() {
  SaveOptions options;
  options.file.durability = Durability::process;
  return options;
}

void run(benchmark::State& state, const Versions& v) {
  const auto copy = [&] { save(open(v.next).value(), v.out, quick()).value(); };
  copy();
  double copied = 0, made = 0, applied = 0, digested = 0;
  SaveOptions compressed = quick();
  compressed.format = CompressedSteleFormat();
  for (auto _ : state) {
    copied += seconds_of(copy);
    made += seconds_of(
        [&] { save(make_delta(open(v.base).value(), open(v.next).value()).value(), v.delta, compressed).value(); });
    applied += seconds_of([&] { save(open_with_deltas(v.base, {v.delta}).value(), v.out, quick()).value(); });
    digested += seconds_of([&] { benchmark::DoNotOptimize(weights_digest(open(v.next).value()).value()); });
  }
  if (weights_digest(open(v.out).value()).value() != weights_digest(open(v.next).value()).value()) {
    return state.SkipWithError("another result");
  }
  state.counters["size"] = static_cast<double>(std::filesystem::file_size(v.delta)) /
                           static_cast<double>(std::filesystem::file_size(v.next));
  state.counters["make_of_a_copy"] = made / copied;
  state.counters["apply_of_a_copy"] = applied / copied;
  state.counters["digest_of_a_copy"] = digested / copied;
}

void reinforcement_bf16(benchmark::State& state) {
  Versions v;
  v.write<bfloat16>(tensors,
                    [](float w, std::size_t, auto& random) { return w + (random() % 2 != 0 ? 2e-6F : -2e-6F); });
  run(state, v);
}
void adam_f32(benchmark::State& state) {
  Versions v;
  v.write<float>(tensors / 2, [](float w, std::size_t, auto& random) {
    return w - 3e-5F * (static_cast<float>(random() % 2001) / 1000 - 1);
  });
  run(state, v);
}
void one_of_sixteen_tensors(benchmark::State& state) {
  Versions v;
  v.write<bfloat16>(tensors, [](float w, std::size_t t, auto& random) {
    return t == 3 ? static_cast<float>(random() % 2001) / 1e5F : w;
  });
  run(state, v);
}
BENCHMARK(reinforcement_bf16)->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK(adam_f32)->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK(one_of_sixteen_tensors)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace

BENCHMARK_MAIN();
