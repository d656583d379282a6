// Steps that are saved as deltas of the step before.
#include <stele/checkpoints/manager.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>

#include "checkpoints/steps.hpp"
#include "json/sealed.hpp"

namespace step_deltas_test {

namespace {

using namespace stele_test::steps;

struct Model {
  std::vector<float> frozen, trained;
};

/// The weights of a step; `frozen` is the same in all.
Model model_at(std::int64_t step, float offset = 0) {
  Model model{std::vector<float>(20'000), std::vector<float>(20'000)};
  for (std::size_t i = 0; i < 20'000; ++i) {
    model.frozen[i] = static_cast<float>(i * 2654435761U % 1000003);
    model.trained[i] = model.frozen[i] + offset;
    if (i % 50 == 0) model.trained[i] += static_cast<float>(step);
  }
  return model;
}

SavedStep save_model(CheckpointManager& manager, std::int64_t step, float offset = 0) {
  const Model model = model_at(step, offset), moments = model_at(step * 3);
  auto saved = manager.save(step, checkpoint_of(model, StateKind("M", moments)).value(), {{{"loss", 1}}, {}});
  REQUIRE_MESSAGE(saved, why(saved));
  return *std::move(saved);
}

void check_step(const CheckpointManager& manager, std::int64_t step, float offset = 0) {
  CAPTURE(step);
  const auto opened = manager.open_step(step);
  REQUIRE_MESSAGE(opened, why(opened));
  Model model, moments;
  const auto loaded = manager.load_step(*opened, model, StateKind("M", moments));
  REQUIRE_MESSAGE(loaded, why(loaded));
  CHECK(model.trained == model_at(step, offset).trained);
  CHECK(model.frozen == model_at(step).frozen);
  CHECK(moments.trained == model_at(step * 3).trained);
}

std::vector<std::optional<std::int64_t>> bases(const CheckpointManager& manager) {
  std::vector<std::optional<std::int64_t>> all;
  for (const StepInfo& info : manager.steps().value()) all.push_back(info.base);
  return all;
}

using Bases = std::vector<std::optional<std::int64_t>>;

TEST_SUITE_BEGIN("checkpoints");

TEST_CASE("deltas: a step stores what changed since the step before, and every so often all") {
  const TempDir dir;
  auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 3});
  std::vector<std::uint64_t> bytes;
  for (std::int64_t step = 1; step <= 6; ++step) bytes.push_back(save_model(manager, step).info.bytes);
  CHECK(bases(manager) == Bases{{}, 1, 2, 3, {}, 5});
  CHECK(bytes[1] * 20 < bytes[0]);
  CHECK(bytes[4] > bytes[0] / 2);
  for (std::int64_t step = 1; step <= 6; ++step) check_step(manager, step);
  // Another manager, without the option, reads and continues the run.
  auto other = manager_in<CompressedRecorder<>>(dir / "run");
  CHECK(other.open_latest().value()->info.step == 6);
  save_model(other, 7);
  CHECK(bases(other).back() == std::nullopt);
  for (std::int64_t step = 1; step <= 7; ++step) check_step(other, step);
}

TEST_CASE_TEMPLATE("deltas: with other formats, at other precisions, in the background", R, BinaryRecorder<>,
                   JsonRecorder<>, CompressedRecorder<DoublePrecision>) {
  const TempDir dir;
  auto manager = manager_in<R>(dir / "run", {.deltas = 5});
  for (std::int64_t step = 1; step <= 4; ++step) {
    const Model model = model_at(step), moments = model_at(step * 3);
    REQUIRE(manager.save_async(step, checkpoint_of(model, StateKind("M", moments)).value()));
  }
  REQUIRE(manager.wait());
  CHECK(bases(manager) == Bases{{}, 1, 2, 3});
  ManagerOptions options;
  options.load.convert = {true, true};
  const auto reader = manager_in<R>(dir / "run", options);
  for (std::int64_t step = 1; step <= 4; ++step) check_step(reader, step);
}

TEST_CASE("deltas: a step stays as long as a kept step needs it") {
  const TempDir dir;
  auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.keep = keep::latest(1), .deltas = 2});
  const std::vector<std::vector<std::int64_t>> expected = {{1}, {1, 2}, {1, 2, 3}, {4}, {4, 5}, {4, 5, 6}, {7}};
  for (std::int64_t step = 1; step <= 7; ++step) {
    const SavedStep saved = save_model(manager, step);
    CHECK(numbers(manager) == expected[static_cast<std::size_t>(step - 1)]);
    CHECK(!saved.not_removed);
    if (step == 4) CHECK(saved.removed == std::vector<std::int64_t>{1, 2, 3});
    check_step(manager, step);
  }
}

TEST_CASE("deltas: those of steps that are not kept are joined on request") {
  const TempDir dir;
  for (const bool background : {false, true}) {
    const std::string run = dir / (background ? "background" : "run");
    auto manager = manager_in<CompressedRecorder<>>(
        run, {.keep = keep::latest(2) | keep::every_steps(3), .deltas = 5, .compact = true});
    for (std::int64_t step = 1; step <= 9; ++step) {
      CAPTURE(step);
      if (background) {
        const Model model = model_at(step), moments = model_at(step * 3);
        REQUIRE(manager.save_async(step, checkpoint_of(model, StateKind("M", moments)).value()));
        REQUIRE(manager.wait());
      } else {
        CHECK(!save_model(manager, step).not_removed);
      }
      for (const std::int64_t number : numbers(manager)) check_step(manager, number);
      if (step == 5) CHECK(numbers(manager) == std::vector<std::int64_t>{1, 3, 4, 5});
    }
    CHECK(numbers(manager) == std::vector<std::int64_t>{1, 3, 6, 7, 8, 9});
    CHECK(bases(manager) == Bases{{}, 1, 3, {}, 7, 8});  // step 7 is whole: after five steps as deltas
    const std::vector<StepInfo> all = manager.steps().value();
    CHECK(all[2].bytes * 20 < all[0].bytes);
    CHECK(all[2].metrics.count("loss") == (background ? 0 : 1));
    CHECK(all[2].deltas == 5);
  }
}

TEST_CASE("deltas: a step that others are deltas of can be removed and saved again") {
  const TempDir dir;
  auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 10});
  for (std::int64_t step = 1; step <= 5; ++step) save_model(manager, step);
  REQUIRE(manager.remove(2));
  CHECK(bases(manager) == Bases{{}, {}, 3, 4});
  for (const std::int64_t step : {1, 3, 4, 5}) check_step(manager, step);
  save_model(manager, 4, 0.25F);  // the run was continued from an older step
  CHECK(bases(manager) == Bases{{}, {}, 3, {}});
  for (const std::int64_t step : {1, 3, 5}) check_step(manager, step);
  check_step(manager, 4, 0.25F);
  CHECK(manager.open_step(3).value().info.metrics.at("loss") == 1);
  CHECK(manager.open_step(5).value().info.metrics.at("loss") == 1);
}

TEST_CASE("deltas: a manager without them breaks no step that is a delta") {
  const TempDir dir;
  {
    auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 10});
    for (std::int64_t step = 1; step <= 3; ++step) save_model(manager, step);
  }
  const Format* const older[] = {find_format("stele")};
  auto manager = manager_in<SafetensorsRecorder<>>(dir / "run", {.older_formats = older});
  save_model(manager, 2, 0.5F);
  CHECK(bases(manager) == Bases{{}, {}, {}});
  check_step(manager, 2, 0.5F);
  for (const std::int64_t step : {1, 3}) check_step(manager, step);
  CHECK(manager.open_step(3).value().info.format == "safetensors");
}

TEST_CASE("deltas: damage of a step breaks those that need it, and the next step is whole") {
  const TempDir dir;
  auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 10});
  for (std::int64_t step = 1; step <= 4; ++step) save_model(manager, step);
  flip(dir / "run/step-00000003/parameters.stele", 100);
  CHECK(manager.verify(2));
  for (const std::int64_t step : {3, 4}) {
    CHECK(manager.verify(step).error().code() == Errc::checksum);
    CHECK(!manager.open_step(step));
  }
  CHECK(manager.open_latest().value()->info.step == 2);
  save_model(manager, 5);
  CHECK(bases(manager).back() == std::optional<std::int64_t>(2));  // the others are known to be broken
  check_step(manager, 5);

  // A step that is lost takes those that need it with it.
  std::filesystem::remove_all(dir / "run/step-00000001");
  std::vector<BrokenStep> broken;
  CHECK(manager.steps(&broken).value().empty());
  CHECK(broken.size() == 4);
  save_model(manager, 6);
  CHECK(bases(manager) == Bases{{}});
  check_step(manager, 6);
}

TEST_CASE("deltas: a resumed run does not build upon a step whose contents are damaged") {
  const TempDir dir;
  {
    auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 10});
    save_model(manager, 1);
    save_model(manager, 2);
  }
  flip(dir / "run/step-00000001/parameters.stele", 200);  // of a tensor that does not change
  auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 10});
  save_model(manager, 3);
  save_model(manager, 4);
  CHECK(bases(manager) == Bases{{}, 1, {}, 3});
  CHECK(!manager.verify(2));
  check_step(manager, 4);
}

TEST_CASE("deltas: managers that cannot store them are refused, and manifests that lie") {
  const TempDir dir;
  ManagerOptions options;
  options.deltas = 3;
  CHECK(code_of(CheckpointManager::open(dir / "a", NpzRecorder<>(), options)) == Errc::invalid_argument);
  CHECK(code_of(CheckpointManager::open(dir / "a", ArchiveRecorder<>(), options)) == Errc::invalid_argument);
  CHECK(code_of(CheckpointManager::open(dir / "a", BinaryRecorder<Quantized8>(), options)) == Errc::invalid_argument);
  options.deltas = 101;
  CHECK(code_of(CheckpointManager::open(dir / "a", CompressedRecorder<>(), options)) == Errc::invalid_argument);

  auto manager = manager_in<CompressedRecorder<>>(dir / "run", {.deltas = 3});
  save_model(manager, 1);
  save_model(manager, 2);
  const std::string file = dir / "run/step-00000002/manifest.json";
  std::ifstream in(file);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  in.close();
  REQUIRE(good.find("\"base\": 1") != good.npos);
  for (const std::string other : {"\"base\": 2", "\"base\": 7", "\"base\": -1", "\"base\": 0", "\"base\": null",
                                  "\"deltas\": 0", "\"deltas\": 101", "\"deltas\": \"1\""}) {
    CAPTURE(other);
    std::string bad = good;
    const std::string member = other.substr(0, other.find(' ')) + " 1";
    bad.replace(bad.find(member), member.size(), other);
    detail::json::seal(bad);
    std::ofstream(file) << bad;
    CHECK(!manager.verify(2));
    CHECK(manager.open_latest().value()->info.step == 1);
  }
}

TEST_SUITE_END();

}  // namespace

}  // namespace step_deltas_test
