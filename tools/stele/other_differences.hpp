// The differences of the graphs, training configurations and optimizer state of two checkpoints.
#pragma once

#include <vector>

#include "facts/differences.hpp"
#include "model.hpp"

namespace stele::command {

using facts::OtherDifference;

/// Compares graphs, training configurations and optimizer state. Errors: those of checkpoint_of() and compare_leaves().
Result<std::vector<OtherDifference>> checkpoint_differences(const Model& a, const Opening& opening_a, const Model& b,
                                                            const Opening& opening_b, double atol, double rtol,
                                                            Terminal& terminal);

}  // namespace stele::command
