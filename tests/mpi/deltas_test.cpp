// Steps of a distributed run that are deltas of the step before.
#include <doctest/doctest.h>

#include <optional>

#include "mpi/support.hpp"

namespace {

using namespace mpi_test;

struct Net {
  Sharded<float> frozen, trained;
  Sharded<float> scalar;
  std::vector<float> bias;
};
Net placed_net(Cut cut, MPI_Comm comm) {
  const int r = rank_of(comm), n = size_of(comm);
  return {box_of<float>({300, 40}, cut, r, n), box_of<float>({300, 40}, cut, r, n), box_of<float>(Shape(), cut, r, n),
          std::vector<float>(3)};
}
float trained(std::uint64_t number, std::int64_t step) {
  return static_cast<float>(number * 2654435761U % 1000003) + (number % 50 == 0 ? static_cast<float>(step) : 0);
}
Net net(Cut cut, MPI_Comm comm, std::int64_t step) {
  Net made = placed_net(cut, comm);
  fill(made.frozen, 3);
  made.trained.fill(0);
  each_element(made.trained, [&](std::size_t i, std::uint64_t n) { made.trained.local()[i] = trained(n, step); });
  made.scalar.fill(static_cast<float>(step));
  made.bias = {1, 2, static_cast<float>(step)};
  return made;
}
bool is_net(const Net& found, std::int64_t step) {
  bool good = has(found.frozen, 3) && found.bias == std::vector<float>{1, 2, static_cast<float>(step)};
  each_element(found.trained,
               [&](std::size_t i, std::uint64_t n) { good = good && found.trained.local()[i] == trained(n, step); });
  for (const float x : found.scalar.local()) good = good && x == static_cast<float>(step);
  return good;
}

mpi::CheckpointManager manager_in(const std::string& folder, MPI_Comm comm, ManagerOptions manager) {
  auto opened = mpi::CheckpointManager::open(folder, comm, std::move(manager), quick());
  REQUIRE_MESSAGE(opened, why(opened));
  return *std::move(opened);
}
void save_net(mpi::CheckpointManager& manager, MPI_Comm comm, std::int64_t step, Cut cut = Cut::rows,
              std::int64_t value = 0) {
  CAPTURE(step);
  if (value == 0) value = step;
  const Net model = net(cut, comm, value), moments = net(cut, comm, 3 * value);
  const auto saved = manager.save(step, model, {}, StateKind("M", moments));
  REQUIRE_MESSAGE(saved, why(saved));
  CHECK_FALSE(saved->not_removed);
}
void check_newest(const std::string& folder, MPI_Comm comm, std::int64_t step, Cut cut = Cut::rows,
                  std::int64_t value = 0, std::size_t skipped = 0) {
  CAPTURE(step);
  if (value == 0) value = step;
  auto manager = manager_in(folder, comm, {});
  Net model = placed_net(cut, comm), moments = placed_net(cut, comm);
  const auto resumed = manager.resume(model, StateKind("M", moments));
  REQUIRE_MESSAGE(resumed, why(resumed));
  REQUIRE(*resumed);
  CHECK((*resumed)->info.step == step);
  CHECK((*resumed)->skipped.size() == skipped);
  CHECK(is_net(model, value));
  CHECK(is_net(moments, 3 * value));
}

using Bases = std::vector<std::pair<std::int64_t, std::optional<std::int64_t>>>;
/// Returns the steps and their bases.
Bases bases(const std::string& folder) {
  Bases all;
  const auto manager = CheckpointManager::open(folder, ShardedSafetensorsRecorder<>()).value();
  const auto steps = manager.steps().value();
  for (const StepInfo& info : steps) all.emplace_back(info.step, info.base);
  return all;
}

TEST_CASE("deltas: a chain is resumed by any number of processes, and a policy keeps the bases") {
  const SharedDir dir;
  const std::string run = dir / "run";
  {
    auto manager = manager_in(run, MPI_COMM_WORLD, {.keep = keep::latest(1), .deltas = 3});
    for (std::int64_t step = 1; step <= 7; ++step) save_net(manager, MPI_COMM_WORLD, step);
  }
  on_root([&] {
    CHECK(bases(run) == Bases{{5, std::nullopt}, {6, 5}, {7, 6}});
    const auto size = [&](const char* step) {
      std::uintmax_t bytes = 0;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(run + "/" + step)) {
        if (entry.is_regular_file()) bytes += entry.file_size();
      }
      return bytes;
    };
    CHECK(size("step-00000007") * 3 < size("step-00000005"));
    // A manager of one process lists and verifies the steps; it opens the whole ones.
    auto manager = CheckpointManager::open(run, ShardedSafetensorsRecorder<>()).value();
    CHECK(manager.verify(7));
    CHECK(code_of(manager.open_step(7)) == Errc::unsupported);
    CHECK(manager.open_step(5));
  });
  for (int readers = 1; readers <= size_of(MPI_COMM_WORLD); ++readers) {
    const First loading(readers);
    if (!loading) continue;
    for (const Cut cut : {Cut::rows, Cut::columns, Cut::replicated, Cut::uneven}) check_newest(run, *loading, 7, cut);
  }
  // A new manager continues the chain. With other boxes, the step is whole.
  {
    auto manager = manager_in(run, MPI_COMM_WORLD, {.deltas = 3});
    save_net(manager, MPI_COMM_WORLD, 8);
    save_net(manager, MPI_COMM_WORLD, 9);
    save_net(manager, MPI_COMM_WORLD, 10);
    save_net(manager, MPI_COMM_WORLD, 11, Cut::one);
    save_net(manager, MPI_COMM_WORLD, 12, Cut::one);
  }
  const bool alone = size_of(MPI_COMM_WORLD) == 1;  // all boxes are the same
  on_root([&] {
    CHECK(bases(run) == Bases{{5, std::nullopt},
                              {6, 5},
                              {7, 6},
                              {8, 7},
                              {9, std::nullopt},
                              {10, 9},
                              {11, alone ? std::optional<std::int64_t>(10) : std::nullopt},
                              {12, 11}});
  });
  check_newest(run, MPI_COMM_WORLD, 12, Cut::columns);
  mpi::Options files = quick();
  files.files = 1;
  CHECK(code_of(mpi::CheckpointManager::open(run, MPI_COMM_WORLD, {.deltas = 3}, files)) == Errc::invalid_argument);
  CHECK(code_of(mpi::CheckpointManager::open(run, MPI_COMM_WORLD, {.deltas = 101}, quick())) == Errc::invalid_argument);
}

TEST_CASE("deltas: the steps that are deltas of a replaced one become whole first") {
  const SharedDir dir;
  const std::string run = dir / "run";
  auto manager = manager_in(run, MPI_COMM_WORLD, {.deltas = 5});
  for (std::int64_t step = 1; step <= 4; ++step) save_net(manager, MPI_COMM_WORLD, step);
  {
    // By another number of processes.
    const First fewer(std::max(1, size_of(MPI_COMM_WORLD) - 1));
    if (fewer) {
      auto other = manager_in(run, *fewer, {});
      save_net(other, *fewer, 2, Cut::rows, 20);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  on_root([&] { CHECK(bases(run) == Bases{{1, std::nullopt}, {2, std::nullopt}, {3, std::nullopt}, {4, 3}}); });
  check_newest(run, MPI_COMM_WORLD, 4, Cut::columns);
  on_root([&] { std::filesystem::remove_all(run + "/step-00000004"); });
  check_newest(run, MPI_COMM_WORLD, 3);
  on_root([&] { std::filesystem::remove_all(run + "/step-00000003"); });
  check_newest(run, MPI_COMM_WORLD, 2, Cut::rows, 20);
}

TEST_CASE("deltas: damage of a base is found, and does not spread") {
  const SharedDir dir;
  const std::string run = dir / "run";
  {
    auto manager = manager_in(run, MPI_COMM_WORLD, {.deltas = 5});
    for (std::int64_t step = 1; step <= 3; ++step) save_net(manager, MPI_COMM_WORLD, step);
  }
  const auto flip = [&](const std::string& file) {
    const auto at = static_cast<std::streamoff>(std::filesystem::file_size(file) * 3 / 4);  // in `trained`
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const int c = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(c ^ 4));
  };
  const std::string shard = "/parameters/shard-00001-model-00001-of-00001";
  // Step 2 is damaged, so that 3 cannot be resumed; a new step is whole.
  on_root([&] { flip(run + "/step-00000002" + shard + ".stele"); });
  check_newest(run, MPI_COMM_WORLD, 1, Cut::columns, 0, 2);
  {
    auto manager = manager_in(run, MPI_COMM_WORLD, {.deltas = 5});
    save_net(manager, MPI_COMM_WORLD, 4);
    save_net(manager, MPI_COMM_WORLD, 5);
    // After a save, the base is trusted; if it is damaged meanwhile, the step is whole.
    MPI_Barrier(MPI_COMM_WORLD);
    on_root([&] { flip(run + "/step-00000004" + shard + ".safetensors"); });
    save_net(manager, MPI_COMM_WORLD, 6);
  }
  on_root([&] {
    const auto all = bases(run);
    REQUIRE(all.size() == 6);
    CHECK(all[3].second == std::nullopt);
    CHECK(all[4].second == 4);
    CHECK(all[5].second == std::nullopt);
  });
  check_newest(run, MPI_COMM_WORLD, 6, Cut::uneven);
}

}  // namespace
