// Ranks steps by a metric.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "stele/checkpoints/policies.hpp"

namespace stele::inline v0::detail {

/// Returns the metric of a step, or NaN if the step does not have it.
double metric_of(const StepInfo& step, const std::string& metric);
/// Returns the indices of the steps, best first. NaN comes last; of equal steps, the newer comes first.
std::vector<std::size_t> ranked(std::span<const StepInfo> steps, const std::string& metric, Better better);

}  // namespace stele::inline v0::detail
