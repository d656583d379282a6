// The steps of a distributed run.
#include <stele/checkpoints/random.hpp>

#include <csignal>
#include <random>

#include <doctest/doctest.h>

#include "mpi/support.hpp"

namespace {

using namespace mpi_test;

mpi::CheckpointManager manager_in(const std::string& folder, MPI_Comm comm, ManagerOptions manager = {}) {
  auto opened = mpi::CheckpointManager::open(folder, comm, std::move(manager), quick());
  REQUIRE_MESSAGE(opened, why(opened));
  return *std::move(opened);
}

TEST_CASE("steps: saved by all, resumed by fewer, opened by one") {
  const SharedDir dir;
  const int world = size_of(MPI_COMM_WORLD), rank = rank_of(MPI_COMM_WORLD);
  {
    auto manager =
        manager_in(dir / "run", MPI_COMM_WORLD, {.keep = keep::latest(2), .save = save_when::every_steps(5)});
    Model nothing = placed(Cut::rows, MPI_COMM_WORLD);
    CHECK_FALSE(manager.resume(nothing).value());
    CHECK(manager.due(5).value());
    CHECK_FALSE(manager.due(6).value());
    Model model = filled(Cut::rows, MPI_COMM_WORLD), moments = filled(Cut::columns, MPI_COMM_WORLD);
    std::mt19937 random(static_cast<unsigned>(rank));
    for (const std::int64_t step : {5, 10, 15}) {
      const auto saved =
          manager.save(step, model, {{{"loss", 0.5}}, {{"random", random_state(random)}}}, StateKind("M", moments));
      REQUIRE_MESSAGE(saved, why(saved));
      CHECK(saved->info.step == step);
    }
  }
  // The newest step is damaged.
  on_root([&] {
    const std::string file = dir / "run/step-00000015/optimizer-0/stele-shards.json";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  });
  for (int readers = 1; readers <= world; readers += 2) {
    const First loading(readers);
    if (!loading) continue;
    auto manager = manager_in(dir / "run", *loading);
    Model model = placed(Cut::grid, *loading), moments = placed(Cut::rows, *loading);
    auto resumed = manager.resume(model, StateKind("M", moments));
    REQUIRE_MESSAGE(resumed, why(resumed));
    REQUIRE(*resumed);
    CHECK((*resumed)->info.step == 10);
    CHECK((*resumed)->info.metrics.at("loss") == 0.5);
    REQUIRE((*resumed)->skipped.size() == 1);
    CHECK((*resumed)->skipped[0].step == 15);
    CHECK((*resumed)->skipped[0].error.code() == Errc::truncated);
    CHECK(is_filled(model));
    moments.count = 77;  // a value, which is no optimizer state
    CHECK(is_filled(moments));
    std::mt19937 random;
    CHECK(set_random_state(random, (*resumed)->info.state.find("random")));
    CHECK(random == std::mt19937(static_cast<unsigned>(rank)));
    CHECK(code_of(manager.resume(model, StateKind("V", moments))) == Errc::not_found);
  }
  on_root([&] {
    const auto manager = CheckpointManager::open(dir / "run", ShardedSafetensorsRecorder<>()).value();
    CHECK(manager.steps().value().size() == 1);  // step 15 has a file of another size
    Model model = placed(Cut::replicated, MPI_COMM_SELF), moments = placed(Cut::replicated, MPI_COMM_SELF);
    const auto resumed = manager.resume(model, StateKind("M", moments));
    REQUIRE_MESSAGE(resumed, why(resumed));
    CHECK(is_filled(model));
    moments.count = 77;  // a value, which is no optimizer state
    CHECK(is_filled(moments));
  });
}

TEST_CASE("all processes get the error of one: no step verifies, other calls, a checkpoint that cannot be made") {
  const SharedDir dir;
  const int rank = rank_of(MPI_COMM_WORLD), last = size_of(MPI_COMM_WORLD) - 1;
  auto manager = manager_in(dir / "run", MPI_COMM_WORLD);
  Model model = filled(Cut::rows, MPI_COMM_WORLD);
  REQUIRE(manager.save(1, model, {}));
  on_root([&] { std::filesystem::remove(dir / "run/step-00000001/manifest.json"); });
  CHECK(code_of(manager.resume(model)) == Errc::checksum);
  CHECK(is_filled(model));

  const Checkpoint plain = checkpoint_of(model).value();
  CHECK(manager.save(1, plain, {}));
  Result<Checkpoint> checkpoint = plain;
  if (rank == last) checkpoint = Error(Errc::duplicate, "made by the test");
  CHECK(code_of(manager.save(2, checkpoint, {})) == Errc::duplicate);
  if (last != 0) {
    CHECK(code_of(manager.save(rank == last ? 4 : 3, model, {})) == Errc::invalid_argument);
    const auto other = rank == last ? manager.save(3, model, {}, StateKind("M", model)) : manager.save(3, model, {});
    CHECK(code_of(other) == Errc::invalid_argument);
  }
  CHECK(manager.save(3, model, {}));
  on_root([&] { CHECK_FALSE(std::filesystem::exists(dir / "run/step-00000002")); });
}

TEST_CASE("a save that fails answers the signal of no process") {
  const SharedDir dir;
  auto manager =
      manager_in(dir / "run", MPI_COMM_WORLD, {.save = save_when::on_signal({SIGUSR1}), .max_bytes = 100'000});
  const Model model = filled(Cut::rows, MPI_COMM_WORLD);
  struct {
    std::vector<float> weight = std::vector<float>(100'000);
  } large;
  if (rank_of(MPI_COMM_WORLD) == size_of(MPI_COMM_WORLD) - 1) ::raise(SIGUSR1);
  CHECK(manager.due(1).value());
  CHECK(code_of(manager.save(1, large, {})) == Errc::no_space);
  CHECK(manager.due(2).value());
  CHECK(manager.save(2, model, {}).value().info.signal == SIGUSR1);
  CHECK_FALSE(manager.due(3).value());
}

TEST_CASE("the caller's communicator keeps its error handler") {
  const SharedDir dir;
  const auto handler = [] {
    MPI_Errhandler found = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &found);
    const bool fatal = found == MPI_ERRORS_ARE_FATAL;
    MPI_Errhandler_free(&found);
    return fatal;
  };
  REQUIRE(handler());
  Model model = filled(Cut::rows, MPI_COMM_WORLD);
  auto manager = manager_in(dir / "run", MPI_COMM_WORLD);
  CHECK(handler());
  CHECK(manager.save(1, model, {}));
  CHECK(manager.resume(model));
  CHECK(handler());
  for (const unsigned files : {0U, 1U}) {
    mpi::Options options = quick();
    options.files = files;
    CHECK(mpi::save(model, dir / "model", MPI_COMM_WORLD, options));
    CHECK(mpi::load_into(model, dir / "model", MPI_COMM_WORLD, quick()));
  }
  CHECK(handler());
}

TEST_CASE("a signal in one process makes the step due in all") {
  const SharedDir dir;
  auto manager = manager_in(dir / "run", MPI_COMM_WORLD, {.save = save_when::on_signal({SIGUSR1})});
  Model model = filled(Cut::rows, MPI_COMM_WORLD);
  CHECK_FALSE(manager.due(1).value());
  CHECK_FALSE(manager.signalled(SIGUSR1).value());
  if (rank_of(MPI_COMM_WORLD) == size_of(MPI_COMM_WORLD) - 1) ::raise(SIGUSR1);
  CHECK(manager.signalled(SIGUSR1).value());
  CHECK(manager.due(1).value());
  CHECK(manager.save(1, model, {}).value().info.signal == SIGUSR1);
  CHECK_FALSE(manager.due(2).value());
  CHECK(manager.signalled(SIGUSR1).value());
  CHECK(manager.save(2, model, {}).value().info.signal == 0);
}

}  // namespace
