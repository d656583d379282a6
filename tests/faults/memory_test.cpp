// Memory that runs out at any allocation of a save or load, and threads that do not start: an error or success, never
// the end of the process, with nothing lost and nothing leaked.
#include <stele/recorders/any.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "harness.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_faults;
using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::SaveOptions;

namespace {

/// Counts allocations and lets one of them fail, or that one and all later ones.
struct Allocations {
  std::atomic<bool> armed{false};
  std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> live{0};
  std::atomic<std::size_t> at{0};  // from 1; 0: none fails
  std::atomic<bool> later{false};
  std::atomic<bool> fired{false};

  bool fails() {
    if (!armed) return false;
    const std::size_t number = ++count;
    const std::size_t first = at;
    if (first == 0 || (number != first && !(later && number > first))) return false;
    fired = true;
    return true;
  }
};
Allocations memory;

void* allocate(std::size_t size, std::size_t alignment) {
  if (memory.fails()) return nullptr;
  void* const made = alignment == 0 ? std::malloc(size != 0 ? size : 1)
                                    : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (made != nullptr) ++memory.live;
  return made;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const made = allocate(size, alignment);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

void release(void* made) noexcept {
  if (made == nullptr) return;
  --memory.live;
  std::free(made);
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t to) {
  return allocate_or_throw(size, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t size, std::align_val_t to) {
  return allocate_or_throw(size, static_cast<std::size_t>(to));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(to));
}
void operator delete(void* made) noexcept { release(made); }
void operator delete[](void* made) noexcept { release(made); }
void operator delete(void* made, std::size_t) noexcept { release(made); }
void operator delete[](void* made, std::size_t) noexcept { release(made); }
void operator delete(void* made, std::align_val_t) noexcept { release(made); }
void operator delete[](void* made, std::align_val_t) noexcept { release(made); }
void operator delete(void* made, std::size_t, std::align_val_t) noexcept { release(made); }
void operator delete[](void* made, std::size_t, std::align_val_t) noexcept { release(made); }

namespace {

// More allocations than any run here has: a bound on the loops below.
constexpr std::size_t most_allocations = 100'000;

enum class Outcome : std::uint8_t { success, out_of_memory, out_of_memory_partly, other_error, threw };

/// Runs `run` with its n-th allocation failing, for each n until none is left to fail. `run` is a call of the library
/// that gives a Result; `check(outcome)` looks at what it left.
template <class Run, class Check>
void each_allocation(const Run& run, const Check& check) {
  check(run(false));  // objects that are made once and kept are made now
  for (const bool later : {false, true}) {
    for (std::size_t n = 1; n < most_allocations; ++n) {
      const std::size_t before = memory.live;
      memory.count = 0;
      memory.at = n;
      memory.later = later;
      memory.fired = false;
      const Outcome outcome = run(true);
      memory.at = 0;
      ++totals.failures;
      INFO("allocation " << n << (later ? " and all later ones" : ""));
      CHECK((outcome <= Outcome::out_of_memory_partly));
      CHECK(memory.live == before);
      check(outcome);
      if (!memory.fired) {
        REQUIRE(outcome == Outcome::success);
        break;
      }
      REQUIRE(n + 1 < most_allocations);
    }
  }
}

/// Returns the outcome of a call, during which allocations may fail if `armed`.
template <class Call>
Outcome outcome_of(bool armed, const Call& call) {
  memory.armed = armed;
  try {
    const auto result = call();
    memory.armed = false;
    if (result) return Outcome::success;
    if (result.error().code() != Errc::out_of_memory) return Outcome::other_error;
    return result.error().partially_applied() ? Outcome::out_of_memory_partly : Outcome::out_of_memory;
  } catch (...) {
    memory.armed = false;
    return Outcome::threw;
  }
}

struct NnefFolder : stele::NnefRecorder<> {};
struct PaddleFolder : stele::Recorder<stele::PaddleFormat> {
  PaddleFolder() : Recorder(stele::PaddleFormat({.folder = true})) {}
};
#define STELE_TEST_MEMORY_RECORDERS                                                                          \
  STELE_TEST_RECORDERS, stele::GgufRecorder<>, stele::SameDiffRecorder<>, stele::BurnRecorder<>, NnefFolder, \
      PaddleFolder

}  // namespace

TEST_CASE_TEMPLATE("faults: memory runs out", R, STELE_TEST_MEMORY_RECORDERS) {
  const TempDir dir;
  const R recorder;
  const std::string folder = std::filesystem::canonical(dir.path()).string();
  const std::string path = folder + "/model" + std::string(recorder.format().extension());
  const Mlp old = small_mlp(500);
  const Mlp fresh = small_mlp(1);
  for (const unsigned threads : {1U, 3U}) {
    CAPTURE(threads);
    SaveOptions save = quick();
    save.threads = threads;
    LoadOptions load;
    load.threads = threads;
    good(recorder.save(fresh, path, save));
    // A temporary folder, new or exchanged with the old one, stays where there is no memory to list it; the next save
    // removes it. A temporary file never stays.
    const auto files = [&] {
      Files all = files_in(folder);
      if (recorder.format().is_folder()) std::erase_if(all, [](const auto& file) { return file.first[0] == '.'; });
      return all;
    };
    const Files new_files = files();
    good(recorder.save(old, path, save));
    const Files old_files = files();
    REQUIRE(new_files != old_files);
    each_allocation([&](bool armed) { return outcome_of(armed, [&] { return recorder.save(fresh, path, save); }); },
                    [&](Outcome outcome) {
                      const bool saved = outcome == Outcome::success;
                      const Files now = files();
                      INFO("outcome " << static_cast<int>(outcome));
                      if (now != (saved ? new_files : old_files)) {
                        ++totals.lost;
                        CHECK(now == (saved ? new_files : old_files));
                      }
                      good(recorder.save(old, path, save));
                    });

    const Image wanted = image(old);
    each_allocation(
        [&](bool armed) { return outcome_of(armed, [&] { return recorder.template load<Mlp>(path, load); }); },
        [](Outcome) {});
    Mlp live = small_mlp(7);
    const Image before = image(live);
    each_allocation([&](bool armed) { return outcome_of(armed, [&] { return recorder.load_into(live, path, load); }); },
                    [&](Outcome outcome) {
                      const Image now = image(live);  // a module all the same, where it is changed in part
                      if (outcome != Outcome::out_of_memory_partly)
                        CHECK(now == (outcome == Outcome::success ? wanted : before));
                      live = small_mlp(7);
                    });
    each_allocation([&](bool armed) { return outcome_of(armed, [&] { return recorder.verify(path, load); }); },
                    [](Outcome) {});
  }
}

TEST_CASE_TEMPLATE("faults: threads that do not start", R, STELE_TEST_RECORDERS) {
  const TempDir dir;
  const R recorder;
  const std::string path = dir / "model";
  Mlp large = small_mlp(1);
  large.layers.emplace_back(1500, 1000, 2.0F);  // 6 MB: worth several threads
  const Image wanted = image(large);
  Block& block = *stele_faults_block();
  SaveOptions save = quick();
  save.threads = 4;
  LoadOptions load;
  load.threads = 4;
  const auto round_trip = [&] {
    good(recorder.save(large, path, save));
    CHECK(image(good(recorder.template load<Mlp>(path, load))) == wanted);
    Mlp live = small_mlp(7);
    live.layers.emplace_back(1500, 1000, 3.0F);
    good(recorder.load_into(live, path, load));
    CHECK(image(live) == wanted);
    good(recorder.verify(path, load));
    // Another precision is computed beside the writing.
    good(typename at_precision<R, stele::DoublePrecision>::type().save(large, path, save));
  };
  block.threads_started = 0;
  round_trip();
  const int started = static_cast<int>(block.threads_started);
  CHECK(started > 0);
  for (int allowed = 0; allowed < started; ++allowed) {
    CAPTURE(allowed);
    block.threads = allowed;
    round_trip();
    block.threads = -1;
    ++totals.failures;
  }
}
