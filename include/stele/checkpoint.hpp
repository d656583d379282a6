// Checkpoint: a model with what it takes to go on training it: parameters, graph, training configuration, the state of
// the optimizer. What archives and SameDiff files hold beside a module's parameters.
#pragma once

#include <optional>

#include "stele/graph.hpp"
#include "stele/optimizer_state.hpp"
#include "stele/training.hpp"

namespace stele {
inline namespace v0 {

/// Everything that a training run needs to go on.
struct Checkpoint {
  Snapshot parameters;
  std::optional<Graph> graph{};
  std::optional<TrainingConfig> training{};
  OptimizerState optimizer{};
};

}  // namespace v0
}  // namespace stele
