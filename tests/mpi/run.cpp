// A distributed training run that may lose a process at a random moment: `run PLACE LAST_STEP KILL_RANK KILL_US`.
// PLACE: a folder or a URL. The variable DELTAS has ManagerOptions::deltas.
// Exit status: 0 at the end of the run, 3 after an error of a save or load.
#include <signal.h>
#include <stele/remote.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "mpi/support.hpp"

namespace {

using namespace mpi_test;

struct Weights {
  Sharded<double> layer;
};

/// Returns the value of an element after so many steps: what a run without interruption has.
double expected(std::uint64_t number, std::int64_t step) {
  double value = static_cast<double>(number);
  for (std::int64_t i = 0; i < step; ++i) value = 0.99 * value + static_cast<double>(i % 17);
  return value;
}

int run(const std::string& folder, std::int64_t last) {
  const int rank = rank_of(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  mpi::Options options = quick();
  options.timeout_seconds = 2;
  const char* const deltas = std::getenv("DELTAS");
  ManagerOptions manager{.keep = keep::latest(2)};
  if (deltas != nullptr) manager.deltas = static_cast<std::size_t>(std::atoi(deltas));
  auto opened = mpi::CheckpointManager::open(folder, MPI_COMM_WORLD, manager, options);
  const auto fail = [&](const Error& error) {
    std::printf("rank %d: %s\n", rank, error.to_string().c_str());
    std::fflush(stdout);
    return 3;
  };
  if (!opened) return fail(opened.error());
  Weights weights{Sharded<double>::split({100, 50}, 0, static_cast<std::size_t>(rank), static_cast<std::size_t>(size))};
  auto resumed = opened->resume(weights);
  if (!resumed) return fail(resumed.error());
  std::int64_t step = 0;
  if (*resumed) {
    step = (*resumed)->info.step;
    // A killed process breaks no step.
    if (!(*resumed)->skipped.empty()) return fail((*resumed)->skipped[0].error);
  } else {
    weights.layer.fill(0);
    each_element(weights.layer,
                 [&](std::size_t i, std::uint64_t n) { weights.layer.local()[i] = static_cast<double>(n); });
  }
  if (rank == 0) std::printf("resumed %lld\n", static_cast<long long>(step));
  for (; step < last;) {
    for (double& x : weights.layer.local()) x = 0.99 * x + static_cast<double>(step % 17);
    ++step;
    if (auto saved = opened->save(step, weights, {}); !saved) return fail(saved.error());
  }
  bool same = true;
  each_element(weights.layer,
               [&](std::size_t i, std::uint64_t n) { same = same && weights.layer.local()[i] == expected(n, step); });
  if (!same) return 4;
  if (rank == 0) std::printf("done %lld\n", static_cast<long long>(step));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string folder = argv[1];
  const int victim = argc > 4 ? std::atoi(argv[3]) : -1;
  if (victim == rank_of(MPI_COMM_WORLD)) {
    std::thread([us = std::atol(argv[4])] {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
      ::raise(SIGKILL);
    }).detach();
  }
  const int status = run(folder, std::atoll(argv[2]));
  std::fflush(stdout);
  // Finalizing waits for all processes, of which one may be gone.
  if (status != 0) std::_Exit(status);
  MPI_Finalize();
  return 0;
}
