// Uses training configurations without anything else.
#include <stele/training.hpp>

int main() {
  stele::TrainingConfig training;
  training.updater = stele::updaters::adam();
  const auto again = stele::TrainingConfig::parse(training.json());
  return again && again->updater == training.updater && stele::updater_state_keys(training.updater.type) ? 0 : 1;
}
