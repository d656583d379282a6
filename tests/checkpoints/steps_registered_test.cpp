// Runs and steps that stele::open finds after a registration.
#include <doctest/doctest.h>
#include <stele/checkpoints/manager.hpp>
#include <stele/checkpoints/steps_format.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/json.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/stele.hpp>

#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace steps_registered_test {

namespace {

using namespace stele;

struct Model {
  std::vector<float> weight;
};

template <class R>
void check_found(const R& recorder) {
  const stele_test::TempDir dir;
  const std::string run = dir / "run";
  auto manager = CheckpointManager::open(run, recorder);
  REQUIRE_MESSAGE(manager, manager.error().to_string());
  for (int number = 1; number <= 2; ++number) {
    Model model{{static_cast<float>(number), 0.5F}};
    REQUIRE(manager->save(number, checkpoint_of(model).value()));
  }
  for (const float number : {1.0F, 2.0F}) {
    const std::string path = number == 2 ? run : run + "/step-00000001";
    CAPTURE(path);
    const auto loaded = load<Model>(path);
    REQUIRE_MESSAGE(loaded, loaded.error().to_string());
    CHECK(loaded->weight[0] == number);
    Model existing;
    CHECK(load_into(existing, path));
    CHECK(open(path).value().notes().size() == 1);
  }
}

}  // namespace

TEST_CASE("steps format: registered, open and load find runs and steps in each format of the parts") {
  static const StepsFormat steps(formats());
  static const FormatFamily::Member member{&steps};
  if (find_format(steps.name()) == nullptr) {
    FormatFamily family;
    family.title = "Steps of a run";
    family.members = {&member, 1};
    REQUIRE(register_formats(family));
  }
  check_found(BinaryRecorder<>());
  check_found(SafetensorsRecorder<>());
  check_found(HubRecorder<>());
  check_found(PytorchRecorder<>());
  check_found(NpzRecorder<>());
  check_found(GgufRecorder<>());
  check_found(JsonRecorder<>());
  check_found(ArchiveRecorder<>());
}

}  // namespace steps_registered_test
