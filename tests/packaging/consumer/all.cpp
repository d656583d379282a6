// All rooms: the front door and every recorder.
#include <iostream>

#include <stele/checkpoints/manager.hpp>
#include <stele/stele.hpp>
#include <stele/transform.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  const stele::Snapshot renamed = stele::rename(stele::snapshot_of(model).value(), {{"^layers", "blocks"}}).value();
  std::cout << stele::summary(renamed);
  stele::save(model, "mine.safetensors").value();
  check(stele::load<Model>("mine.safetensors").value(), "front door, safetensors");
  stele::save(model, "mine.json.gz").value();
  check(stele::load<Model>("mine.json.gz").value(), "front door, JSON");

  stele::save(model, "mine.zip").value();
  check(stele::load<Model>("mine.zip").value(), "front door, archive");

  stele::BinaryRecorder<stele::HalfPrecision> binary;
  binary.save(model, "mine.stele").value();
  check(stele::load<Model>("mine.stele").value(), "front door, .stele in half precision");

  auto steps = stele::CheckpointManager::open("steps", stele::BinaryRecorder<>()).value();
  steps.save_async(1, stele::checkpoint_of(model, stele::StateKind("M", model)).value()).value();
  steps.wait().value();
  Model resumed = make_model(), moments = make_model();
  steps.resume(resumed, stele::StateKind("M", moments)).value();
  check(resumed, "a step");
  check(moments, "optimizer state of a step");

  Model in_place = make_model();
  stele::load_into(in_place, "mine.stele").value();
  check(in_place, "in place");

  try {
    stele::load<Model>("missing.stele").value();
  } catch (const stele::Exception& error) {
    std::cout << "expected: " << error.what() << "\n";
    return 0;
  }
  std::cerr << "a missing file was loaded\n";
  return 1;
}
