// A training run that is killed at random moments, with saves in the background, policies and removal.
#include <stele/checkpoints/manager.hpp>
#include <stele/checkpoints/random.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "harness.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using stele_test::TempDir;

struct Weights {
  std::vector<float> layer;
  std::vector<float> bias;
};

/// A run whose every step depends on all that came before it.
struct Run {
  Weights weights{std::vector<float>(5000, 1.0F), std::vector<float>(10)};
  Weights moments{std::vector<float>(5000), std::vector<float>(10)};
  std::mt19937 random{42};
  std::normal_distribution<float> noise;
  std::int64_t step = 0;

  void train() {
    const auto update = [&](std::vector<float>& w, std::vector<float>& m) {
      for (std::size_t i = 0; i < w.size(); i += 7) {
        m[i] = 0.9F * m[i] + noise(random);
        w[i] -= 0.01F * m[i] + 0.001F * w[(i + static_cast<std::size_t>(step)) % w.size()];
      }
    };
    update(weights.layer, moments.layer);
    update(weights.bias, moments.bias);
    ++step;
  }
  Checkpoint checkpoint() const { return checkpoint_of(weights, StateKind("M", moments)).value(); }
  StepValues values() const {
    return {{{"loss", weights.layer[0]}}, {{"random", random_state(random)}, {"noise", random_state(noise)}}};
  }
  friend bool operator==(const Run& a, const Run& b) {
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    return a.step == b.step && a.random == b.random && same(a.weights.layer, b.weights.layer) &&
           same(a.weights.bias, b.weights.bias) && same(a.moments.layer, b.moments.layer) &&
           same(a.moments.bias, b.moments.bias);
  }
};

/// Memory that a killed process shares with the test.
struct Shared {
  std::int64_t resumed = -1;  // the step it resumed from
  std::int64_t committed = -1;
  bool failed = false;
};

template <class R>
constexpr std::size_t deltas = std::is_same_v<R, CompressedRecorder<>> ? 5 : 0;

template <class R>
CheckpointManager open(const std::string& folder) {
  return CheckpointManager::open(folder, R(),
                                 {.keep = keep::latest(2) | keep::best(1, "loss") | keep::every_steps(500),
                                  .save = save_when::every_steps(3),
                                  .parts = {.threads = 2},
                                  .staging_bytes = 100'000,
                                  .deltas = deltas<R>,
                                  .compact = true})
      .value();
}

void resume(const CheckpointManager& manager, Run& run, Shared& shared) {
  const auto opened = manager.resume(run.weights, StateKind("M", run.moments)).value();
  if (!opened) return;
  run.step = opened->info.step;
  set_random_state(run.random, opened->info.state.find("random")).value();
  set_random_state(run.noise, opened->info.state.find("noise")).value();
  // A kill breaks no step, and no step that was reported as saved is lost.
  if (!opened->skipped.empty() || run.step < shared.committed) shared.failed = true;
  shared.resumed = run.step;
}

/// Trains until it is killed, or up to step `last`.
template <class R>
void train(const std::string& folder, std::int64_t last, Shared& shared) {
  CheckpointManager manager = open<R>(folder);
  Run run;
  resume(manager, run, shared);
  while (run.step < last) {
    run.train();
    if (!manager.due(run.step)) continue;
    manager.save_async(run.step, run.checkpoint(), run.values()).value();
    if (run.step % 30 == 0) {
      manager.wait().value();
      shared.committed = run.step;
    }
  }
  manager.save(run.step, run.checkpoint(), run.values()).value();
}

TEST_SUITE_BEGIN("faults");

TEST_CASE_TEMPLATE("a run that is killed many times ends bit for bit like one that is not", R, BinaryRecorder<>,
                   ArchiveRecorder<>, CompressedRecorder<>) {
  const TempDir dir;
  const std::string folder = dir / "run";
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto& shared = *new (memory) Shared;
  std::mt19937 random(1);
  const int kills = std::is_same_v<R, ArchiveRecorder<>> ? (stele_faults::full() ? 60 : 30)
                    : stele_faults::full()               ? 300
                                                         : 60;
  std::int64_t resumed = -1;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        train<R>(folder, INT64_MAX, shared);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        shared.failed = true;
      }
      ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(random() % 30'000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK_FALSE(shared.failed);
    CHECK(shared.resumed >= resumed);
    resumed = shared.resumed;
    ++stele_faults::totals.kills;
  }
  CHECK(resumed > 0);
  const std::int64_t last = resumed + 1000;  // the last child may have come further than it resumed from
  train<R>(folder, last, shared);

  Run whole;
  while (whole.step < last) whole.train();
  Run again;
  const CheckpointManager manager = open<R>(folder);
  resume(manager, again, shared);
  CHECK_FALSE(shared.failed);
  CHECK(again == whole);
  for (const std::string& name : dir.names()) CHECK(name == "run");
  const std::vector<StepInfo> steps = manager.steps().value();
  CHECK(steps.size() == stele_test::names_in(folder).size());                           // no litter
  CHECK(steps.size() <= (3 + static_cast<std::size_t>(last / 500)) * (1 + deltas<R>));  // those that deltas need
  for (const StepInfo& step : steps) CHECK(manager.verify(step.step));
  std::printf("%d kills, %lld steps trained, resumed at last from %lld\n", kills, static_cast<long long>(last),
              static_cast<long long>(resumed));
  ::munmap(memory, sizeof(Shared));
}

TEST_CASE("errors of the machine are returned: no older step is resumed, and no good step is put aside") {
  using stele_faults::Fault;
  const TempDir dir;
  const std::string folder = dir / "run";
  Run run;
  const auto manager_of = [&]() -> Result<CheckpointManager> {
    ManagerOptions options;
    options.parts.file.durability = Durability::process;
    options.parts.threads = options.load.threads = 1;
    return CheckpointManager::open(folder, BinaryRecorder<>(), options);
  };
  for (run.step = 1; run.step <= 3; ++run.step)
    manager_of().value().save(run.step, run.checkpoint(), run.values()).value();
  const auto resume = [&]() -> Status {
    STELE_TRY_ASSIGN(const CheckpointManager manager, manager_of());
    STELE_TRY_ASSIGN(const auto all, manager.steps());
    CHECK(all.size() == 3);
    STELE_TRY_ASSIGN(const auto opened, manager.resume(run.weights, StateKind("M", run.moments)));
    CHECK(opened->info.step == 3);
    return {};
  };
  const auto save = [&]() -> Status {
    STELE_TRY_ASSIGN(CheckpointManager manager, manager_of());
    STELE_TRY(manager.save(3, run.checkpoint(), run.values()));
    return {};
  };
  for (const std::function<Status()>& work : {std::function<Status()>(resume), std::function<Status()>(save)}) {
    stele_faults::Calls calls;
    {
      const stele_faults::Watch watch(folder);
      work().value();
      calls = stele_faults::Watch::calls();
    }
    CHECK(calls.size() > 20);
    std::size_t failed = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      for (const int code : {EIO, EMFILE, ENOMEM}) {
        const stele_faults::Spoiled spoiled{static_cast<std::uint32_t>(i + 1), Fault::fail, code};
        CAPTURE(spoiled.text());
        CAPTURE(calls[i].name);
        CAPTURE(calls[i].subject);
        Status status;
        {
          const stele_faults::Watch watch(folder, spoiled);
          status = work();
        }
        if (!status) {
          ++failed;
          CHECK(status.error().code() == (code == ENOMEM ? Errc::out_of_memory : Errc::io));
        }
        for (const std::string& name : stele_test::names_in(folder)) CHECK(name.find("broken") == std::string::npos);
        CHECK(manager_of().value().verify(3));
      }
    }
    CHECK(failed > calls.size());  // most calls matter
  }
}

TEST_SUITE_END();

}  // namespace
