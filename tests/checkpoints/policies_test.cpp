// Which steps are kept and saved.
#include <stele/checkpoints/policies.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <csignal>

namespace policies_test {

namespace {

using namespace stele;

std::vector<StepInfo> steps_of(std::vector<std::pair<std::int64_t, double>> losses) {
  std::vector<StepInfo> steps;
  for (const auto& [step, loss] : losses) {
    steps.push_back({.step = step, .metrics = {{"loss", loss}}, .time_ms = step * 1000});
  }
  return steps;
}

std::vector<std::int64_t> kept(const KeepPolicy& policy, const std::vector<StepInfo>& steps) {
  std::vector<std::int64_t> numbers;
  const std::vector<bool> keep = policy(steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (keep[i]) numbers.push_back(steps[i].step);
  }
  return numbers;
}

using Numbers = std::vector<std::int64_t>;

TEST_SUITE_BEGIN("checkpoints");

TEST_CASE("keep: the latest, the best, every so many steps and seconds, and unions of them") {
  const auto steps = steps_of({{10, 0.5}, {20, 0.1}, {30, NAN}, {40, 0.1}, {50, 0.9}});
  CHECK(kept(keep::all(), steps) == Numbers{10, 20, 30, 40, 50});
  CHECK(kept(keep::latest(2), steps) == Numbers{40, 50});
  CHECK(kept(keep::latest(0), steps) == Numbers{50});
  CHECK(kept(keep::latest(9), steps) == Numbers{10, 20, 30, 40, 50});
  CHECK(kept(keep::best(1, "loss"), steps) == Numbers{40, 50});
  CHECK(kept(keep::best(2, "loss"), steps) == Numbers{20, 40, 50});
  CHECK(kept(keep::best(4, "loss"), steps) == Numbers{10, 20, 40, 50});
  CHECK(kept(keep::best(1, "loss", Better::higher), steps) == Numbers{50});
  CHECK(kept(keep::best(2, "loss", Better::higher), steps) == Numbers{10, 50});
  CHECK(kept(keep::best(5, "loss"), steps) == Numbers{10, 20, 30, 40, 50});
  CHECK(kept(keep::best(1, "other"), steps) == Numbers{50});
  CHECK(kept(keep::every_steps(20), steps) == Numbers{20, 40, 50});
  CHECK(kept(keep::every_steps(0), steps) == Numbers{50});
  CHECK(kept(keep::every_seconds(15), steps) == Numbers{10, 30, 50});
  CHECK(kept(keep::matching([](const StepInfo& s) { return s.step == 20; }), steps) == Numbers{20, 50});
  CHECK(kept(keep::latest(1) | keep::best(1, "loss") | keep::every_steps(30), steps) == Numbers{30, 40, 50});
  CHECK(kept(keep::all(), {}).empty());
}

TEST_CASE("keep: every_seconds keeps the same steps again after the others are gone") {
  auto steps = steps_of({{1, 0}, {2, 0}, {4, 0}, {5, 0}, {7, 0}});
  const KeepPolicy policy = keep::every_seconds(3);
  const Numbers first = kept(policy, steps);
  std::erase_if(steps, [&](const StepInfo& s) { return std::find(first.begin(), first.end(), s.step) == first.end(); });
  CHECK(kept(policy, steps) == first);
}

TEST_CASE("keep: every_seconds after a clock that was ahead, or has turned over") {
  const auto at = [](std::initializer_list<std::int64_t> seconds) {
    std::vector<StepInfo> steps;
    for (const std::int64_t s : seconds) steps.push_back({.step = std::ssize(steps) + 1, .time_ms = s * 1000});
    return steps;
  };
  CHECK(kept(keep::every_seconds(10), at({9000, 9010, 20, 25, 30, 41})) == Numbers{1, 2, 3, 5, 6});
  CHECK(kept(keep::every_seconds(10), at({INT64_MIN / 1000, INT64_MAX / 1000, 0})) == Numbers{1, 2, 3});
}

TEST_CASE("save: every so many steps and seconds, on a signal, and unions of them") {
  CHECK(save_when::every_steps(10)({.step = 20}));
  CHECK_FALSE(save_when::every_steps(10)({.step = 21}));
  CHECK_FALSE(save_when::every_steps(0)({.step = 0}));
  CHECK(save_when::every_seconds(5)({.seconds = 5}));
  CHECK_FALSE(save_when::every_seconds(5)({.seconds = 4.9}));
  const SavePolicy all = save_when::every_steps(10) | save_when::on_signal({SIGTERM, SIGINT});
  CHECK(all.signals() == std::vector<int>{SIGTERM, SIGINT});
  CHECK(all({.step = 3, .signal = SIGINT}));
  CHECK_FALSE(all({.step = 3, .signal = SIGABRT}));
  CHECK_FALSE(all({.step = 3}));
}

TEST_SUITE_END();

}  // namespace

}  // namespace policies_test
