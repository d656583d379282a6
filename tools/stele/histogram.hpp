// Statistics of each tensor with a histogram; a damaged tensor has an error instead.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "statistics.hpp"

namespace stele::command {

inline constexpr std::size_t histogram_bins = 48;
using Histogram = std::array<std::uint64_t, histogram_bins>;  // between a tensor's minimum and maximum

struct LeafFacts {
  Statistics statistics{};
  std::optional<Histogram> histogram{};
  std::optional<std::string> error{};
};

enum class Histograms : std::uint8_t { no, yes };

/// Reads every leaf; for histograms, reads leaves with numbers twice. Errors: cancelled.
Result<std::vector<LeafFacts>> facts_of(const Snapshot& snapshot, Histograms histograms, Terminal& terminal);

}  // namespace stele::command
