#include "histogram.hpp"

#include <algorithm>
#include <cmath>

namespace stele::command {

namespace {

void count(Histogram& bins, std::span<const double> numbers, double low, double high) {
  const double width = high - low;
  for (const double d : numbers) {
    if (!std::isfinite(d)) continue;
    const double at = width > 0 && std::isfinite(width) ? (d - low) / width * histogram_bins : 0;
    ++bins.at(std::min(static_cast<std::size_t>(std::max(at, 0.0)), histogram_bins - 1));
  }
}

}  // namespace

Result<std::vector<LeafFacts>> facts_of(const Snapshot& snapshot, Histograms histograms, Terminal& terminal) {
  std::vector<LeafFacts> facts(snapshot.leaf_count());
  const bool twice = histograms == Histograms::yes;
  Progress progress(terminal, "reading", (twice ? 2 : 1) * snapshot.byte_size());
  STELE_TRY(for_each_leaf(
      snapshot, facts.size(), terminal.common().threads, [&](std::size_t i, ReadContext& context) -> Status {
        const LeafView leaf = snapshot.leaf(i);
        LeafFacts& out = facts[i];
        const auto pass = [&](const std::function<void(std::span<const double>)>& use) {
          NumbersSink sink(leaf, use, &progress);
          return leaf.stream(sink, context);
        };
        auto read = pass([&](std::span<const double> numbers) { out.statistics.add(numbers); });
        if (read && twice && out.statistics.finite() != 0) {
          Histogram bins{};
          read = pass(
              [&](std::span<const double> numbers) { count(bins, numbers, out.statistics.min, out.statistics.max); });
          out.histogram = bins;
        }
        if (read) return {};
        if (read.error().code() == Errc::cancelled) return read;
        out = {};
        out.error = read.error().to_string();
        return {};
      }));
  return facts;
}

}  // namespace stele::command
