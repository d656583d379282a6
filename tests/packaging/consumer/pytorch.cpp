// One recorder alone: PyTorch's files, a state_dict and a checkpoint.
#include <stele/record.hpp>
#include <stele/recorders/pytorch.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  const stele::PytorchRecorder<> recorder;
  recorder.save(model, "one.pt").value();
  check(recorder.load<Model>("one.pt").value(), "pytorch");

  stele::Checkpoint checkpoint{stele::snapshot_of(model).value()};
  checkpoint.optimizer.set("momentum_buffer", model).value();
  checkpoint.training.emplace().updater = stele::updaters::nesterovs();
  recorder.save(checkpoint, "two.pt").value();
  const stele::Checkpoint all = recorder.open_checkpoint("two.pt").value();
  check(stele::load<Model>(all.parameters).value(), "pytorch, checkpoint");
  return all.training->updater.type == "Nesterovs" ? 0 : 1;
}
