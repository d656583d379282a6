// Measures every operation against its limit. In each round the limit runs first, then the operation, so that other
// load of the machine affects both. The counter `ratio` is the median of the rounds' ratios; `low` and `high` are its
// quartiles. benchmarks/goals.py generates the table of docs/performance.md from the results.
//
//   bench_goals [--rounds=N] [--w3] [Google Benchmark's options]
//
// Files are written below the working folder, which should be on a physical disk.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limits.hpp"
#include "models.hpp"
#include "timing.hpp"

namespace {

int rounds = 9;

std::string file(const std::string& name) {
  static const Scratch scratch;
  return scratch.file(name);
}

double quantile(std::vector<double> of, double at) {
  std::sort(of.begin(), of.end());
  return of[static_cast<std::size_t>(at * static_cast<double>(of.size() - 1) + 0.5)];
}

using Timed = std::function<double()>;

/// Measures `run` without a file at `path`: replacing a file includes its removal, and ext4 then allocates immediately
/// what it otherwise allocates later.
template <class F>
Timed fresh(const std::string& path, F run) {
  return [path, run] {
    std::filesystem::remove(path);
    return milliseconds(run);
  };
}

/// Runs rounds of limit and operation, after one warm-up of each.
void compare(benchmark::State& state, const Timed& limit, const Timed& ours) {
  std::vector<double> limit_times;
  std::vector<double> times;
  std::vector<double> ratios;
  limit(), ours();
  for (auto _ : state) {
    limit_times.push_back(limit());
    times.push_back(ours());
    ratios.push_back(times.back() / limit_times.back());
    state.SetIterationTime(times.back() / 1000);
  }
  state.counters["limit_ms"] = quantile(limit_times, 0.5);
  state.counters["ms"] = quantile(times, 0.5);
  state.counters["ratio"] = quantile(ratios, 0.5);
  state.counters["low"] = quantile(ratios, 0.25);
  state.counters["high"] = quantile(ratios, 0.75);
}

/// Measures only a limit.
void measure(benchmark::State& state, std::size_t bytes, const Timed& limit) {
  std::vector<double> times;
  limit();
  for (auto _ : state) {
    times.push_back(limit());
    state.SetIterationTime(times.back() / 1000);
  }
  state.counters["ms"] = quantile(times, 0.5);
  state.counters["GB/s"] = static_cast<double>(bytes) / quantile(times, 0.5) / 1e6;
}

/// A model, and the same bytes as one block for the limits.
template <class M>
struct Workload {
  std::string name;
  M model;
  std::vector<limits::In> pieces;
  limits::FreshMemory memory;
  limits::In bytes;

  Workload(std::string called, M made)
      : name(std::move(called)),
        model(std::move(made)),
        pieces(workload::pieces(stele::snapshot_of(model).value())),
        memory(stele::snapshot_of(model)->byte_size()),
        bytes(memory.span()) {
    std::byte* to = memory.span().data();
    for (const limits::In piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  }
  std::string raw() const { return file(name + ".raw"); }

  // The limits. Those that write do so without an existing file; `write_over` replaces the file of the previous round.
  Timed write() const {
    return fresh(raw(), [this] { return limits::write(raw(), bytes), 0; });
  }
  Timed write_over() const {
    return [this] { return milliseconds([this] { return limits::write(raw(), bytes), 0; }); };
  }
  Timed write_synced() const {
    return fresh(raw(), [this] { return limits::write_synced(raw(), bytes), 0; });
  }
  Timed write_gathered() const {
    return fresh(raw(), [this] { return limits::write_gathered(raw(), pieces), 0; });
  }
  Timed convert_and_write() const {
    return fresh(raw(), [this] { return limits::convert_and_write(raw(), bytes), 0; });
  }
  Timed read(unsigned threads) const {
    return [this, threads] { return milliseconds([&] { return limits::read(raw(), bytes.size(), threads); }); };
  }
  Timed read_blocks() const {
    return [this] { return milliseconds([this] { return limits::read_blocks(raw(), pieces); }); };
  }
  Timed read_and_convert() const {
    return [this] { return milliseconds([this] { return limits::read_and_convert(raw(), bytes.size()); }); };
  }
  Timed map_and_touch() const {
    return [this] { return milliseconds([this] { return limits::map_and_touch(raw()); }); };
  }
  Timed copy() const {
    return [this] { return milliseconds([this] { return limits::copy(bytes); }); };
  }
  Timed copy_into(std::span<std::byte> to) const {
    return
        [this, to] { return milliseconds([this, to] { return std::memcpy(to.data(), bytes.data(), bytes.size()); }); };
  }
};

stele::SaveOptions save_options(unsigned threads, stele::Durability durability = stele::Durability::process) {
  stele::SaveOptions options;
  options.threads = threads;
  options.file.durability = durability;
  return options;
}

template <class Recorder, class M>
Timed save_over(const M& model, const std::string& path, const stele::SaveOptions& options) {
  return
      [&model, path, options] { return milliseconds([&] { return Recorder().save(model, path, options).value(); }); };
}
template <class Recorder, class M>
Timed save(const M& model, const std::string& path, const stele::SaveOptions& options) {
  return fresh(path, [&model, path, options] { return Recorder().save(model, path, options).value(); });
}

template <class Recorder, class M>
Timed load(const std::string& path, unsigned threads) {
  stele::LoadOptions options;
  options.threads = threads;
  return [path, options] { return milliseconds([&] { return Recorder().template load<M>(path, options).value(); }); };
}

/// Opens a mapping, finds the first tensor and reads its first byte.
template <class Recorder>
Timed open_mapped(const std::string& path) {
  return [path] {
    return milliseconds([&] {
      stele::Snapshot snapshot = Recorder().open(stele::map_file(path).value()).value();
      benchmark::DoNotOptimize(*static_cast<const volatile std::byte*>(snapshot.leaf(0).view().data()));
      return snapshot;
    });
  };
}

/// Opens a file that is read, finds the first tensor and reads its first 256 bytes.
template <class Recorder>
Timed open_read(const std::string& path) {
  return [path] {
    return milliseconds([&] {
      stele::Snapshot snapshot = Recorder().open(path).value();
      std::array<std::byte, 256> first{};
      snapshot.leaf(0).read(0, first).value();
      benchmark::DoNotOptimize(first);
      return snapshot;
    });
  };
}

/// Registers `count` rounds. The body creates its data when it runs, because a filter may skip it.
void add(const std::string& name, int count, std::function<void(benchmark::State&)> body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->Iterations(count)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

template <class M>
using Shared = std::function<const Workload<M>&()>;

template <class M>
void add_limits(const std::string& name, int count, const Shared<M>& shared) {
  const auto one = [&](const char* what, auto prepare, auto timed) {
    add(name + "/limit/" + what, count, [=](benchmark::State& state) {
      const Workload<M>& w = shared();
      prepare(w);
      measure(state, w.bytes.size(), timed(w));
    });
  };
  const auto nothing = [](const auto&) {};
  const auto raw = [](const auto& w) { limits::write(w.raw(), w.bytes); };
  const auto half = [](const auto& w) { limits::convert_and_write(w.raw(), w.bytes); };
  one("copy, warm", nothing, [](const auto& w) -> Timed {
    auto to = std::make_shared<stele::Bytes>(w.bytes.size());
    return [to, run = w.copy_into(to->span())] { return run(); };
  });
  one("copy, fresh memory", nothing, [](const auto& w) { return w.copy(); });
  one("write", nothing, [](const auto& w) { return w.write(); });
  one("write, replacing a file", nothing, [](const auto& w) { return w.write_over(); });
  one("writev", nothing, [](const auto& w) { return w.write_gathered(); });
  one("write and fsync", nothing, [](const auto& w) { return w.write_synced(); });
  one("f32 to f16 and write", nothing, [](const auto& w) { return w.convert_and_write(); });
  one("read, fresh memory", raw, [](const auto& w) { return w.read(1); });
  one("read, fresh memory, 2 threads", raw, [](const auto& w) { return w.read(2); });
  one("read, a block for each tensor", raw, [](const auto& w) { return w.read_blocks(); });
  one("read f16, f32 in fresh memory", half, [](const auto& w) { return w.read_and_convert(); });
  one("map and touch", raw, [](const auto& w) { return w.map_and_touch(); });
}

template <template <class> class Recorder, class Memory, class M>
void add_recorder(const std::string& name, const std::string& kind, int count, const Shared<M>& shared) {
  using Native = Recorder<stele::NativePrecision>;
  const std::string path = name + std::string(Native().format().extension());
  const auto one = [&](const std::string& what, auto run) {
    add(name + "/" + what + "/" + kind, count, [=](benchmark::State& state) {
      run(state, shared());
      std::filesystem::remove(file(path));
    });
  };
  for (const unsigned threads : {0U, 1U}) {
    const char* alone = threads == 1 ? ", 1 thread" : "";
    one(std::string("save") + alone, [=](benchmark::State& state, const auto& w) {
      compare(state, w.write(), save<Native>(w.model, file(path), save_options(threads)));
    });
    one(std::string("save f16") + alone, [=](benchmark::State& state, const auto& w) {
      compare(state, w.convert_and_write(),
              save<Recorder<stele::HalfPrecision>>(w.model, file(path), save_options(threads)));
    });
    one(std::string("save bf16") + alone, [=](benchmark::State& state, const auto& w) {
      compare(state, w.convert_and_write(),
              save<Recorder<stele::BrainPrecision>>(w.model, file(path), save_options(threads)));
    });
  }
  one("save, durable", [=](benchmark::State& state, const auto& w) {
    compare(state, w.write_synced(), save<Native>(w.model, file(path), save_options(0, stele::Durability::full)));
  });
  one("save, replacing", [=](benchmark::State& state, const auto& w) {
    compare(state, w.write_over(), save_over<Native>(w.model, file(path), save_options(0)));
  });
  for (const unsigned threads : {1U, 2U}) {
    const std::string with = threads == 1 ? ", 1 thread" : ", 2 threads";
    one("load" + with, [=](benchmark::State& state, const auto& w) {
      limits::write(w.raw(), w.bytes);
      save<Native>(w.model, file(path), save_options(0))();
      compare(state, w.read(1), load<Native, M>(file(path), threads));
    });
    one("load f16" + with, [=](benchmark::State& state, const auto& w) {
      limits::convert_and_write(w.raw(), w.bytes);
      save<Recorder<stele::HalfPrecision>>(w.model, file(path), save_options(0))();
      compare(state, w.read_and_convert(), load<Native, M>(file(path), threads));
    });
  }
  one("open", [=](benchmark::State& state, const auto& w) {
    limits::write(w.raw(), w.bytes);
    save<Native>(w.model, file(path), save_options(0))();
    compare(state, w.map_and_touch(), open_mapped<Native>(file(path)));
  });
  one("open, not mapped", [=](benchmark::State& state, const auto& w) {
    limits::write(w.raw(), w.bytes);
    save<Native>(w.model, file(path), save_options(0))();
    compare(state, w.map_and_touch(), open_read<Native>(file(path)));
  });
  one("to bytes", [](benchmark::State& state, const auto& w) {
    compare(state, w.copy(), [&] { return milliseconds([&] { return Memory().save(w.model).value(); }); });
  });
  one("to span", [](benchmark::State& state, const auto& w) {
    // Includes space for the index. All pages exist after the warm-up round.
    stele::Bytes copy(w.bytes.size());
    stele::Bytes to(Memory().save(w.model)->size());
    compare(state, w.copy_into(copy.span()),
            [&] { return milliseconds([&] { return Memory().save(w.model, to.span()).value(); }); });
  });
}

template <class M, class Make>
void add_workload(const std::string& name, int count, Make make) {
  const Shared<M> shared = [name, make]() -> const Workload<M>& {
    static std::optional<Workload<M>> made;  // one per name: each workload has a separate type Make
    if (!made) made.emplace(name, make());
    return *made;
  };
  add_limits<M>(name, count, shared);
  add_recorder<stele::BinaryRecorder, stele::BytesRecorder<>, M>(name, "binary", count, shared);
  add_recorder<stele::SafetensorsRecorder, stele::MemoryRecorder<stele::SafetensorsFormat>, M>(name, "safetensors",
                                                                                               count, shared);
  add_recorder<stele::PytorchRecorder, stele::MemoryRecorder<stele::PytorchFormat>, M>(name, "pytorch", count, shared);
  add_recorder<stele::NpzRecorder, stele::MemoryRecorder<stele::NpzFormat>, M>(name, "npz", count, shared);
  add_recorder<stele::GgufRecorder, stele::MemoryRecorder<stele::GgufFormat>, M>(name, "gguf", count, shared);
}

// W4 has only values, so there is no limit for comparison.
void config_to_bytes(benchmark::State& state) {
  const workload::Config config;
  for (auto _ : state) benchmark::DoNotOptimize(stele::BytesRecorder<>{}.save(config).value());
}
void config_from_bytes(benchmark::State& state) {
  const stele::Bytes bytes = stele::BytesRecorder<>{}.save(workload::Config{}).value();
  for (auto _ : state) {
    benchmark::DoNotOptimize(stele::BytesRecorder<>{}.load<workload::Config>(bytes.span()).value());
  }
}
void config_copy(benchmark::State& state) {
  const workload::Config config;
  for (auto _ : state) benchmark::DoNotOptimize(workload::Config(config));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  bool with_w3 = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option.starts_with("--rounds=")) {
      rounds = std::max(1, std::atoi(argv[i] + 9));
    } else if (option == "--w3") {
      with_w3 = true;
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 1;
    }
  }
  add_workload<workload::Gpt2>("W1", rounds, workload::gpt2);
  add_workload<workload::List>("W2", 5 * rounds, [] { return workload::many(20000); });
  if (with_w3) add_workload<workload::List>("W3", rounds, [] { return workload::single(std::size_t{2} << 30); });
  benchmark::RegisterBenchmark("W4/to bytes/binary", config_to_bytes)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("W4/from bytes/binary", config_from_bytes)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("W4/copy", config_copy)->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
