// Checkpoint: a model that can be trained further: parameters, graph, training configuration, optimizer state. Archives
// and SameDiff files store all of it.
#pragma once

#include <optional>

#include "stele/graph.hpp"
#include "stele/optimizer_state.hpp"
#include "stele/training.hpp"

namespace stele {
inline namespace v0 {

/// Everything that a training run needs to continue.
struct Checkpoint {
  Snapshot parameters;
  std::optional<Graph> graph{};
  std::optional<TrainingConfig> training{};
  OptimizerState optimizer{};
};

}  // namespace v0
}  // namespace stele
