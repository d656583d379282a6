// Uses the parts that DL4J's formats share, without a format: checkpoints, graphs, training configurations.
#include <stele/checkpoint.hpp>
#include <stele/graph.hpp>
#include <stele/training.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  stele::Checkpoint checkpoint{stele::snapshot_of(model).value()};
  checkpoint.optimizer.set("V", model).value();
  checkpoint.training.emplace().updater = stele::updaters::nesterovs();
  const bool ok = checkpoint.graph.emplace().order().value().empty() && stele::operation_hash("add") != 0 &&
                  stele::learning_rate(*checkpoint.training).value() == 0.1;
  check(stele::load<Model>(checkpoint.parameters).value(), "checkpoint.hpp");
  return ok ? 0 : 1;
}
