// The differences of two files other than in their tensors' elements.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"

namespace stele::command {

/// A tie, a plain value, a metadata string, a typed property or a part of a checkpoint that two files do not share.
struct OtherDifference {
  std::string kind;  // "tie", "plain value", "metadata", "property", "checkpoint", "optimizer"
  std::string name;
  std::string a, b;  // as text; empty: not in this file
};

/// Compares two files. With patterns, compares only ties and plain values that match one. A number differs as in
/// compare_leaves().
std::vector<OtherDifference> other_differences(const Snapshot& a, const std::vector<Named>& names_a, const Snapshot& b,
                                               const std::vector<Named>& names_b,
                                               const std::vector<std::string>& patterns, double atol, double rtol);

/// Compares graphs, training configurations and optimizer state. Errors: those of checkpoint_of() and compare_leaves().
Result<std::vector<OtherDifference>> checkpoint_differences(const Model& a, const Opening& opening_a, const Model& b,
                                                            const Opening& opening_b, double atol, double rtol,
                                                            Terminal& terminal);

/// Gives the tensor of a file that stores one without a name (.npy) the name of the only tensor of the other file.
void pair_unnamed(const Model& a, std::vector<Named>& names_a, const Model& b, std::vector<Named>& names_b);

}  // namespace stele::command
