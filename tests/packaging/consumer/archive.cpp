// Archives alone: two tags, one with optimizer state and a training configuration.
#include <stele/record.hpp>
#include <stele/recorders/archive.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model(), moment = make_model();
  const stele::ArchiveRecorder<> recorder(stele::ArchiveFormat({.tag = "first"}));
  recorder.save(model, "one.zip").value();

  stele::Checkpoint checkpoint{stele::snapshot_of(model).value()};
  checkpoint.optimizer.set("V", moment).value();
  checkpoint.training.emplace().updater = stele::updaters::nesterovs();
  recorder.edit(checkpoint, "one.zip", "second").value();

  check(recorder.load<Model>("one.zip").value(), "archive, first tag");
  const stele::Checkpoint newest = stele::open_archive("one.zip").value();
  check(stele::load<Model>(newest.parameters).value(), "archive, newest tag");
  Model state;
  stele::LoadOptions options;
  options.rebuild = true;  // its list is empty
  newest.optimizer.load_into("V", state, options).value();
  check(state, "archive, optimizer state");
  return newest.training->updater.type == "Nesterovs" ? 0 : 1;
}
