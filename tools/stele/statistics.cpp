#include "statistics.hpp"

#include <stele/expansion.hpp>

namespace stele::command {

Result<std::vector<Statistics>> statistics_of(const Snapshot& snapshot, const std::vector<Named>& names,
                                              Terminal& terminal) {
  const Unexpanded stored = unexpanded(snapshot);
  std::vector<Statistics> all(snapshot.leaf_count());
  std::vector<std::uint32_t> leaves;
  std::uint64_t total = 0;
  std::vector<bool> seen(snapshot.leaf_count());
  for (const Named& named : names) {
    const LeafView leaf = stored.snapshot.leaf(named.leaf);
    if (seen[named.leaf] || !facts::has_numbers(leaf.dtype())) continue;
    seen[named.leaf] = true;
    leaves.push_back(named.leaf);
    total += leaf.byte_size();
  }
  Progress progress(terminal, "reading", total);
  const facts::Advance advance = progress.advance();
  const auto read = [&](std::size_t i, ReadContext& context) -> Status {
    Statistics& sums = all[leaves[i]];
    STELE_TRY(facts::add_leaf(stored.snapshot.leaf(leaves[i]), sums, advance, context));
    sums.repeat(stored.times[leaves[i]]);
    return {};
  };
  STELE_TRY(for_each_leaf(stored.snapshot, leaves.size(), terminal.common().threads, read));
  std::vector<Statistics> out;
  out.reserve(names.size());
  for (const Named& named : names) out.push_back(all[named.leaf]);
  return out;
}

Result<std::vector<LeafFacts>> facts_of(const Snapshot& snapshot, Histograms histograms, Terminal& terminal) {
  std::vector<LeafFacts> all(snapshot.leaf_count());
  Progress progress(terminal, "reading", (histograms == Histograms::yes ? 2 : 1) * snapshot.byte_size());
  const facts::Advance advance = progress.advance();
  STELE_TRY(for_each_leaf(snapshot, all.size(), terminal.common().threads,
                          [&](std::size_t i, ReadContext& context) -> Status {
                            STELE_TRY_ASSIGN(all[i], facts::facts_of(snapshot.leaf(i), histograms, advance, context));
                            return {};
                          }));
  return all;
}

}  // namespace stele::command
