// Measures the costs of distributed checkpoints. Under mpirun, `bench_mpi scale FOLDER MIB` saves and loads MIB for
// each process; `bench_mpi simulate` plans for many processes without starting them.
#include <stele/mpi.hpp>

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "checkpoints/mpi/plan.hpp"

namespace {

using namespace stele;
using mpi::detail::LocalTensor;

struct Model {
  std::vector<Sharded<float>> layers;
};

Model model_of(std::size_t mib, int rank, int size) {
  Model model;
  const auto rows = static_cast<Extent>(mib) * static_cast<Extent>(size) * 16;  // of 1024 floats, in 16 tensors
  for (int i = 0; i < 16; ++i) {
    model.layers.push_back(
        Sharded<float>::split({rows, 1024}, 0, static_cast<std::size_t>(rank), static_cast<std::size_t>(size)));
  }
  return model;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int scale(const std::string& folder, std::size_t mib) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Model model = model_of(mib, rank, size);
  for (auto& layer : model.layers) layer.fill(static_cast<float>(rank));
  mpi::Options options;
  options.save.threads = options.load.threads = 1;
  options.load.trust_data = true;
  double save = 1e9, load = 1e9;
  for (int round = 0; round < 3; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now();
    mpi::save(model, folder, MPI_COMM_WORLD, options).value();
    save = std::min(save, now() - begin);
    MPI_Barrier(MPI_COMM_WORLD);
    begin = now();
    mpi::load_into(model, folder, MPI_COMM_WORLD, options).value();
    load = std::min(load, now() - begin);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d %zu %.4f %.4f\n", size, mib, save, load);
  return 0;
}

/// Plans `tensors` tensors whose rows are divided among `processes` processes. `different`: each tensor has a different
/// shape.
void simulate(std::size_t processes, std::size_t tensors, bool different) {
  mpi::detail::TensorTable table;
  std::string packed;
  for (std::size_t i = 0; i < tensors; ++i) {
    const Extent rows = processes * 4 + (different ? i * processes : i % 10 * processes);
    mpi::detail::TensorTable::pack(packed, {"model.layers." + std::to_string(i) + ".weight", DType::f32, {rows, 4096}});
  }
  table.add(packed).value();
  double pack = 0, plan = 0;
  std::size_t sent = 0;
  mpi::detail::Planner planner(table);
  const std::uint32_t step = mpi::detail::batch_size(processes);
  const auto count = static_cast<std::uint32_t>(tensors);
  for (std::uint32_t first = 0; first < count; first += step) {
    const std::uint32_t end = std::min(count, first + step);
    std::vector<std::string> messages;
    double begin = now();
    std::vector<LocalTensor> local(count);
    std::vector<const LocalTensor*> mine(count, nullptr);
    for (std::size_t process = 0; process < processes; ++process) {
      for (std::uint32_t i = first; i < end; ++i) {
        const Extent rows = table.tensors()[i].shape[0] / processes;
        local[i].box = {{process * rows, 0}, {rows, 4096}};
        mine[i] = &local[i];
      }
      messages.push_back(mpi::detail::pack_boxes(mine, first, end, {}));
      sent += messages.back().size();
    }
    pack += now() - begin;
    begin = now();
    planner.add(first, end, messages, false).value();
    plan += now() - begin;
  }
  double begin = now();
  mpi::detail::ShardIndex index = planner.take();
  for (std::size_t process = 0; process < processes; ++process) {
    index.files.push_back({"shard-" + std::to_string(process) + "-model-00001-of-00001.safetensors", 1, process});
  }
  const std::string text = v0::detail::shards::to_text(index);
  const double write = now() - begin;
  begin = now();
  Limits limits;
  v0::detail::IndexBudget memory(limits, text.size());
  memory.admit(text.size(), v0::detail::index_rate::index);
  v0::detail::shards::parse_shard_index(text, memory).value();
  const double open = now() - begin;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("| %zu | %zu | %s | %.1f MB, %.2f s | %.2f s | %.1f MB, %.2f s | %.2f s | %ld MB |\n", processes, tensors,
              different ? "all different" : "10", static_cast<double>(sent) / 1e6, pack, plan,
              static_cast<double>(text.size()) / 1e6, write, open, usage.ru_maxrss / 1024);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int result = 0;
  if (argc == 4 && std::strcmp(argv[1], "scale") == 0) {
    result = scale(argv[2], static_cast<std::size_t>(std::atoi(argv[3])));
  } else if (argc == 5 && std::strcmp(argv[1], "simulate") == 0) {
    simulate(static_cast<std::size_t>(std::atoi(argv[2])), static_cast<std::size_t>(std::atoi(argv[3])),
             std::strcmp(argv[4], "different") == 0);
  } else {
    std::puts("usage: bench_mpi scale FOLDER MIB | simulate PROCESSES TENSORS equal|different");
    result = 2;
  }
  MPI_Finalize();
  return result;
}
