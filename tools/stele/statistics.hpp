// Statistics of all tensors of a file, by several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "facts/statistics.hpp"
#include "model.hpp"

namespace stele::command {

using facts::Histogram;
using facts::histogram_bins;
using facts::Histograms;
using facts::LeafFacts;
using facts::Statistics;
using facts::statistics_of;

/// Returns the statistics of each of `names`, and checks the tensors' checksums; count is 0 for dtypes without numbers.
Result<std::vector<Statistics>> statistics_of(const Snapshot& snapshot, const std::vector<Named>& names,
                                              Terminal& terminal);
/// Returns the facts of every leaf. Errors: cancelled.
Result<std::vector<LeafFacts>> facts_of(const Snapshot& snapshot, Histograms histograms, Terminal& terminal);

}  // namespace stele::command
