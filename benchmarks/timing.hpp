// The time of one call, and a folder for files.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

/// Returns the milliseconds until `run` returns. The result of `run` is destroyed after that, because freeing memory is
/// not part of the measurement.
template <class F>
double milliseconds(F&& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto result = run();
  const double time = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  benchmark::DoNotOptimize(result);
  return time;
}

/// A folder below the working folder, which should be on a physical disk; removed at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = "stele-bench-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      std::perror("mkdtemp");
      std::exit(1);
    }
    folder_ = std::filesystem::absolute(name);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};
