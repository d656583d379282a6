// Runs and steps that are opened without a manager.
#include <doctest/doctest.h>
#include <stele/checkpoints/manager.hpp>
#include <stele/checkpoints/steps_format.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/stele.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace steps_format_test {

namespace {

using namespace stele;
using stele_test::TempDir;
namespace fs = std::filesystem;

struct Model {
  std::vector<float> weight;
};

const StepsFormat& steps() {
  static const StepsFormat format(formats());
  return format;
}

std::string step(const std::string& run, int number) {
  const std::string digits = std::to_string(number);
  return run + "/step-" + std::string(8 - digits.size(), '0') + digits;
}

/// Saves the steps 1, 2 and 3 with a model and the state of an optimizer, each with its own number.
template <class R>
void save_run(const std::string& run, const R& recorder, std::size_t deltas = 0) {
  ManagerOptions options;
  options.deltas = deltas;
  auto manager = CheckpointManager::open(run, recorder, options);
  REQUIRE_MESSAGE(manager, manager.error().to_string());
  for (int number = 1; number <= 3; ++number) {
    Model model{std::vector<float>(300, 0.5F)}, moments{{0.25F}};
    model.weight[0] = static_cast<float>(number);
    auto checkpoint = checkpoint_of(model, StateKind("M", moments));
    REQUIRE(checkpoint);
    const auto saved = manager->save(number, *checkpoint, {{{"loss", 1.0 / number}}, {}});
    REQUIRE_MESSAGE(saved, saved.error().to_string());
  }
}

float first_of(const std::string& path) {
  auto loaded = [&]() -> Result<Model> {
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(steps(), path));
    return load<Model>(snapshot);
  }();
  REQUIRE_MESSAGE(loaded, loaded.error().to_string());
  return loaded->weight[0];
}

bool has_note(const Snapshot& snapshot, std::string_view text) {
  const auto& notes = snapshot.notes();
  return std::any_of(notes.begin(), notes.end(), [&](const auto& n) { return n.find(text) != n.npos; });
}

}  // namespace

TEST_CASE("steps format: runs and steps in each form of their path") {
  const TempDir dir;
  save_run(dir / "stele", BinaryRecorder<>());
  save_run(dir / "deltas", CompressedRecorder<>(), 10);
  save_run(dir / "safetensors", SafetensorsRecorder<>());
  const fs::path before = fs::current_path();
  for (const std::string name : {"stele", "deltas", "safetensors"}) {
    CAPTURE(name);
    const std::string run = dir / name;
    const auto source = open_folder(run);
    REQUIRE(source);
    CHECK(steps().recognises_folder(*(*source)->bundle()));
    CHECK(first_of(run) == 3);
    CHECK(first_of(run + "/") == 3);
    for (int number = 1; number <= 3; ++number) {
      CHECK(first_of(step(run, number)) == static_cast<float>(number));
      CHECK(first_of(step(run, number) + "/") == static_cast<float>(number));
      CHECK(first_of(step(run, 1) + "/../" + fs::path(step(run, number)).filename().string()) ==
            static_cast<float>(number));
    }
    fs::current_path(step(run, 2));
    CHECK(first_of(".") == 2);
    fs::current_path(run);
    CHECK(first_of(".") == 3);
    CHECK(first_of(fs::path(step(run, 1)).filename().string()) == 1);
    fs::current_path(before);
    const auto opened = open(steps(), run);
    REQUIRE(opened);
    CHECK(has_note(*opened, "step 3, in the format"));
    CHECK(has_note(*opened, "the newest complete step"));
    CHECK(has_note(*opened, "a delta of step 2") == (name == "deltas"));
    CHECK_FALSE(has_note(*open(steps(), step(run, 1)), "newest"));
    const auto whole = open_checkpoint(steps(), run);
    REQUIRE(whole);
    REQUIRE(whole->optimizer.find("M") != nullptr);
    CHECK(verify(steps(), run));
    CHECK(verify(steps(), step(run, 2)));
  }
}

TEST_CASE("steps format: a checkpoint in one file") {
  const TempDir dir;
  auto manager = CheckpointManager::open(dir / "run", PytorchRecorder<>());
  REQUIRE(manager);
  const Model model{{5}};
  REQUIRE(manager->save(1, *checkpoint_of(model)));
  CHECK(std::filesystem::exists(step(dir / "run", 1) + "/checkpoint.pt"));
  CHECK(first_of(dir / "run") == 5);
}

TEST_CASE("steps format: incomplete and damaged steps") {
  const TempDir dir;
  save_run(dir / "run", BinaryRecorder<>());
  const std::string run = dir / "run", file = step(run, 3) + "/parameters.stele";
  SUBCASE("a missing file") {
    fs::remove(file);
    const auto opened = open(steps(), run);
    REQUIRE(opened);
    CHECK(has_note(*opened, "step 2"));
    CHECK(has_note(*opened, "step 3 is not complete"));
    CHECK(first_of(run) == 2);
    const auto checked = verify(steps(), run);
    REQUIRE(checked);
    CHECK(checked->count(Report::What::unchecked) == 1);
    CHECK(open(steps(), step(run, 3)).error().code() == Errc::not_found);
  }
  SUBCASE("a flipped bit") {
    std::string bytes = stele_test::read_text(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    stele_test::write_text(file, bytes);
    CHECK(verify(steps(), run).error().code() == Errc::checksum);
    CHECK(verify(steps(), step(run, 3)).error().code() == Errc::checksum);
    CHECK(verify(steps(), step(run, 2)));
  }
  SUBCASE("no complete step") {
    for (int number = 1; number <= 3; ++number) fs::remove(step(run, number) + "/parameters.stele");
    CHECK(open(steps(), run).error().code() == Errc::not_found);
  }
  SUBCASE("another name") {
    fs::rename(step(run, 3), run + "/best");
    const auto renamed = open(steps(), run + "/best");
    REQUIRE_FALSE(renamed);
    CHECK(renamed.error().hint() == "rename the folder");
  }
  SUBCASE("no format") {
    const std::vector<const Format*> few{find_format("safetensors")};
    CHECK(open(StepsFormat(few), run).error().code() == Errc::unsupported);
  }
  SUBCASE("nothing is written") {
    CHECK(save(Model{{1}}, dir / "other", {.format = &steps()}).error().code() == Errc::unsupported);
    REQUIRE(open(steps(), run));
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run)) names.push_back(entry.path().filename().string());
    CHECK(names.size() == 3);
  }
}

}  // namespace steps_format_test
