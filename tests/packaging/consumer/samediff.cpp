// DL4J's files alone: parameters, optimizer state and a training configuration, in each container.
#include <stele/record.hpp>
#include <stele/recorders/samediff.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model(), moment = make_model();
  stele::Checkpoint checkpoint{stele::snapshot_of(model).value()};
  checkpoint.optimizer.set("V", moment).value();
  checkpoint.training.emplace().updater = stele::updaters::nesterovs();
  for (const auto container :
       {stele::SameDiffContainer::fb, stele::SameDiffContainer::sdnb, stele::SameDiffContainer::sdz}) {
    const stele::SameDiffRecorder<> recorder(container);
    const std::string path = "one" + std::string(recorder.format().extension());
    recorder.save(checkpoint, path).value();
    check(recorder.load<Model>(path).value(), path.c_str());
    const stele::Checkpoint again = stele::open_samediff(path).value();
    check(stele::load<Model>(*again.optimizer.find("V")).value(), "its optimizer state");
    if (again.training->updater.type != "Nesterovs") return 1;
  }
  return 0;
}
