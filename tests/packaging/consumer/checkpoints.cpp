// The component of training steps alone: policies, random states, tensors of which a process has a box.
#include <random>

#include <stele/checkpoints/manager.hpp>
#include <stele/checkpoints/policies.hpp>
#include <stele/checkpoints/random.hpp>
#include <stele/checkpoints/sharded.hpp>
#include <stele/checkpoints/steps_format.hpp>

#include "model.hpp"

int main() {
  std::vector<stele::StepInfo> steps(3);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = static_cast<std::int64_t>(i);
    steps[i].metrics["loss"] = i == 0 ? 0.1 : 0.2;
  }
  const stele::KeepPolicy policy = stele::keep::latest(1) | stele::keep::best(1, "loss");
  const bool kept = policy(steps) == std::vector<bool>{true, false, true};

  std::mt19937 random(3), again;
  random.discard(10);
  const stele::Value state = stele::random_state(random);
  stele::set_random_state(again, &state).value();

  const auto part = stele::Sharded<float, 2>::split({5, 2}, 0, 1, 2);
  const bool placed = part.start()[0] == 3 && part.extents()[0] == 2;

  const Model model = make_model();
  const stele::Checkpoint checkpoint = stele::checkpoint_of(model, stele::StateKind("M", model)).value();
  const bool reads = !stele::StepsFormat({}).writes();
  const bool good = kept && random == again && placed && reads && checkpoint.optimizer.kinds().size() == 1;
  std::cout << (good ? "training steps: ok\n" : "training steps: wrong\n");
  return good ? 0 : 1;
}
