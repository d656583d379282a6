// The differences of two files besides their tensors' elements.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"

namespace stele::command {

/// A tie, a plain value, a metadata string or a typed property that two files do not share.
struct OtherDifference {
  std::string kind;  // "tie", "plain value", "metadata", "property"
  std::string name;
  std::string a, b;  // as text; empty: not in that file
};

/// Compares two files. With patterns, compares only ties and plain values that match one. A number differs as in
/// compare_leaves().
std::vector<OtherDifference> other_differences(const Snapshot& a, const std::vector<Named>& names_a, const Snapshot& b,
                                               const std::vector<Named>& names_b,
                                               const std::vector<std::string>& patterns, double atol, double rtol);

/// Gives the tensor of a file that stores one without a name (.npy) the name of the only tensor of the other file.
void pair_unnamed(const Model& a, std::vector<Named>& names_a, const Model& b, std::vector<Named>& names_b);

}  // namespace stele::command
