// Saves in the background: what they store, their errors, their number of tensors.
#include <stele/recorders/archive.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "checkpoints/staging.hpp"
#include "checkpoints/steps.hpp"

namespace background_test {

namespace {

using namespace stele_test::steps;

struct Model {
  Net net;
  std::map<std::string, std::vector<float>> heads;
  std::vector<std::int64_t> counts;
  STELE_MODULE(Model, net, heads, counts)
};
struct Flags {
  Tensor<bool, 1> flags;
  STELE_MODULE(Flags, flags)
};

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("memory of background saves stays within its maximum, with blocks that are used again") {
  constexpr std::uint64_t most = 1000;
  stele::detail::steps::StagingMemory memory(most, nullptr);
  std::mt19937 random(5);
  std::vector<stele::detail::steps::Block> taken;
  std::uint64_t used = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t size = random() % most + 1;
    while (used + size > most || (!taken.empty() && random() % 3 == 0)) {
      const std::size_t one = random() % taken.size();
      std::swap(taken[one], taken.back());
      used -= taken.back().size;
      memory.give_back(std::move(taken.back()));
      taken.pop_back();
    }
    taken.push_back(memory.take(size).value());
    REQUIRE(taken.back().size >= size);
    used += taken.back().size;
    REQUIRE(used <= most);
  }
}

TEST_CASE("a save in the background stores the tensors of the moment of the call") {
  const TempDir dir;
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{1} << 30}) {
    auto manager = manager_in(dir / ("run" + std::to_string(limit)), {.staging_bytes = limit});
    Model model{net(0, 20000), {{"a head with a name that is not short", {1, 2}}}, {7}};
    Net m = net(0, 20000);
    for (int step = 1; step <= 5; ++step) {
      for (Net* part : {&model.net, &m}) {
        std::fill(part->weight.begin(), part->weight.end(), static_cast<float>(step));
        std::fill(part->bias.begin(), part->bias.end(), static_cast<float>(step));
      }
      model.heads.begin()->second[0] = static_cast<float>(step);
      REQUIRE(manager.save_async(step, checkpoint_of(model, StateKind("M", m)).value(), {{{"loss", step}}, {}}));
      // Everything changes while the step is written, the names too.
      for (Net* part : {&model.net, &m}) {
        std::fill(part->weight.begin(), part->weight.end(), -1.0F);
        std::fill(part->bias.begin(), part->bias.end(), -1.0F);
      }
      std::map<std::string, std::vector<float>> heads;
      heads["a head with a name that is not short"] = {-1, -1};
      model.heads.swap(heads);
    }
    const auto saved = manager.wait();
    REQUIRE_MESSAGE(saved, why(saved));
    REQUIRE(saved->size() == 5);
    for (int step = 1; step <= 5; ++step) {
      const OpenedStep opened = manager.open_step(step).value();
      const Model loaded = load<Model>(opened.checkpoint.parameters).value();
      const auto all_equal = [&](const auto& numbers) {
        return std::all_of(numbers.begin(), numbers.end(), [&](float x) { return x == static_cast<float>(step); });
      };
      CHECK(all_equal(loaded.net.weight));
      CHECK(all_equal(loaded.net.bias));
      CHECK(loaded.heads.at("a head with a name that is not short")[0] == static_cast<float>(step));
      Net state;
      CHECK(manager.load_step(opened, model, StateKind("M", state)));
      CHECK(all_equal(state.weight));
      CHECK(opened.info.metrics.at("loss") == step);
      CHECK((*saved)[static_cast<std::size_t>(step - 1)].info.step == step);
    }
    CHECK(manager.wait()->empty());
  }
}

TEST_CASE("the error of a background save is returned by the next call, once") {
  const TempDir dir;
  auto manager = manager_in<BinaryRecorder<HalfPrecision>>(dir / "run");
  const Net bad = net(1e30F);
  const Net good = net(1);
  REQUIRE(manager.save_async(1, checkpoint_of(bad).value()));
  SUBCASE("wait") { CHECK(code_of(manager.wait()) == Errc::out_of_range); }
  SUBCASE("save") { CHECK(code_of(manager.save(2, checkpoint_of(good).value())) == Errc::out_of_range); }
  SUBCASE("save_async") {
    Status next;
    for (std::int64_t i = 2; next && i < 10'000; ++i) next = manager.save_async(i, checkpoint_of(good).value());
    CHECK(code_of(next) == Errc::out_of_range);
  }
  CHECK(manager.wait());
  REQUIRE(manager.save_async(20000, checkpoint_of(good).value()));
  CHECK(manager.wait()->back().info.step == 20000);
  for (const std::string& name : stele_test::names_in(dir / "run")) CHECK(name.starts_with("step-"));
  CHECK_FALSE(std::filesystem::exists(dir / "run/step-00000001"));
}

TEST_CASE_TEMPLATE("threads share a manager", R, BinaryRecorder<>, CompressedRecorder<>) {
  const TempDir dir;
  constexpr std::int64_t threads = 4, each = 12;
  const std::size_t deltas = std::is_same_v<R, CompressedRecorder<>> ? 3 : 0;
  auto manager = manager_in<R>(dir / "run", {.staging_bytes = 100'000, .deltas = deltas});
  std::atomic<int> failures{0};
  const auto work = [&](std::int64_t thread) {
    const auto check = [&](const auto& result) { failures += result ? 0 : 1; };
    for (std::int64_t i = 1; i <= each; ++i) {
      const std::int64_t step = i * threads + thread;
      const Net model = net(static_cast<float>(step), 500);
      const Checkpoint checkpoint = checkpoint_of(model).value();
      if ((i + thread) % 2 == 0) check(manager.save(step, checkpoint));
      if ((i + thread) % 2 == 1) check(manager.save_async(step, checkpoint));
      static_cast<void>(manager.due(step));
      if (i % 4 == 0) check(manager.open_latest());
      if (i % 5 == 0) check(manager.wait());
      if (i % 6 == 0) check(manager.steps());
    }
  };
  std::vector<std::thread> running;
  for (std::int64_t thread = 0; thread < threads; ++thread) running.emplace_back(work, thread);
  for (std::thread& thread : running) thread.join();
  REQUIRE(manager.wait());
  CHECK(failures == 0);
  CHECK(numbers(manager).size() == static_cast<std::size_t>(threads * each));
  for (const std::int64_t step : numbers(manager)) {
    Net loaded;
    CHECK(manager.load_step(manager.open_step(step).value(), loaded));
    CHECK(loaded.bias == net(static_cast<float>(step), 500).bias);
  }
}

TEST_CASE("threads save and remove the same steps") {
  const TempDir dir;
  auto manager = manager_in(dir / "run", {.keep = keep::latest(2)});
  std::atomic<int> others{0};  // errors but those of a step that is removed twice
  const auto work = [&](std::int64_t thread) {
    for (std::int64_t step = 1; step <= 12; ++step) {
      const Net model = net(static_cast<float>(step));
      if (!manager.save_async(step, checkpoint_of(model).value())) ++others;
      if (step % 3 != thread) continue;
      auto removed = manager.remove(step);
      if (!removed && removed.error().code() != Errc::not_found) ++others;
    }
  };
  std::thread a(work, 0), b(work, 1);
  a.join();
  b.join();
  CHECK(manager.wait());
  CHECK(others == 0);
  for (const std::int64_t step : numbers(manager)) CHECK(manager.verify(step));
}

TEST_CASE("an invalid bool is not saved in the background either") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  Tensor<bool, 1> flags({2});
  std::memset(static_cast<void*>(flags.data()), 7, 2);
  const Flags model{std::move(flags)};
  REQUIRE(manager.save_async(1, checkpoint_of(model).value()));
  CHECK(code_of(manager.wait()) == Errc::not_representable);
}

TEST_CASE_TEMPLATE("any number of tensors comes back, saved in the background", R, BinaryRecorder<>,
                   SafetensorsRecorder<>, ArchiveRecorder<>) {
  const TempDir dir;
  auto manager = manager_in<R>(dir / "run");
  for (const std::int64_t count : {0, 1, 100, 100'000}) {
    if (count > 1000 && std::is_same_v<R, ArchiveRecorder<>>) continue;  // a zip entry each: covered by its own tests
    std::vector<std::vector<float>> model(static_cast<std::size_t>(count), std::vector<float>{1, 2});
    struct Many {
      std::vector<std::vector<float>> tensors;
    };
    const Many many{model};
    REQUIRE(manager.save_async(count, checkpoint_of(many, StateKind("M", many)).value()));
    const auto saved = manager.wait();
    REQUIRE_MESSAGE(saved, why(saved));
    const OpenedStep opened = manager.open_step(count).value();
    CHECK(opened.checkpoint.parameters.leaf_count() == static_cast<std::size_t>(count));
    const auto again = load<Many>(opened.checkpoint.parameters);
    REQUIRE_MESSAGE(again, why(again));
    CHECK(again->tensors == model);
  }
}

TEST_SUITE_END();

}  // namespace

}  // namespace background_test
