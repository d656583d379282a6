#include "other_differences.hpp"

#include <map>
#include <optional>
#include <utility>

#include "facts/compare.hpp"

namespace stele::command {

namespace {

/// Compares the tensors of one kind of optimizer state.
Status compare_kind(const std::string& kind, const Snapshot& a, const Snapshot& b, double atol, double rtol,
                    const facts::Advance& advance, std::vector<OtherDifference>& out) {
  STELE_TRY_ASSIGN(const auto names_a, names_of(a));
  STELE_TRY_ASSIGN(const auto names_b, names_of(b));
  using Pair = std::pair<std::optional<LeafView>, std::optional<LeafView>>;
  std::map<std::string_view, Pair> all;
  for (const Named& named : names_a) all[named.name].first = a.leaf(named.leaf);
  for (const Named& named : names_b) all[named.name].second = b.leaf(named.leaf);
  ReadContext context;
  for (const auto& [tensor, leaves] : all) {
    std::string x = leaves.first ? facts::type_text(*leaves.first) : "";
    std::string y = leaves.second ? facts::type_text(*leaves.second) : "";
    if (x == y) {
      STELE_TRY_ASSIGN(const facts::Comparison numbers,
                       facts::compare_leaves(*leaves.first, *leaves.second, atol, rtol, context, advance));
      if (numbers.differing == 0) continue;
      y += ", max |a-b| " + short_number(numbers.max_difference());
    }
    out.push_back({"optimizer", kind + " of " + std::string(tensor), std::move(x), std::move(y)});
  }
  return {};
}

}  // namespace

Result<std::vector<OtherDifference>> checkpoint_differences(const Model& a, const Opening& opening_a, const Model& b,
                                                            const Opening& opening_b, double atol, double rtol,
                                                            Terminal& terminal) {
  const unsigned threads = terminal.common().threads;
  STELE_TRY_ASSIGN(const auto found_a, checkpoint_of(a, opening_a, threads));
  STELE_TRY_ASSIGN(const auto found_b, checkpoint_of(b, opening_b, threads));
  const Checkpoint none;
  const Checkpoint& x = found_a ? *found_a : none;
  const Checkpoint& y = found_b ? *found_b : none;
  std::vector<OtherDifference> out;
  const auto part = [&](const char* what, bool equal, bool in_a, bool in_b) {
    if (!equal) out.push_back({"checkpoint", what, in_a ? "A's" : "", in_b ? "B's" : ""});
  };
  part("graph", x.graph == y.graph, x.graph.has_value(), y.graph.has_value());
  part("training", x.training == y.training, x.training.has_value(), y.training.has_value());
  std::map<std::string, std::pair<Snapshot, Snapshot>> kinds;
  for (const auto& [kind, state] : x.optimizer.kinds()) kinds[kind].first = state;
  for (const auto& [kind, state] : y.optimizer.kinds()) kinds[kind].second = state;
  Progress progress(terminal, "comparing");
  const facts::Advance advance = progress.advance();
  for (const auto& [kind, states] : kinds) {
    STELE_TRY(compare_kind(kind, states.first, states.second, atol, rtol, advance, out));
  }
  return out;
}

}  // namespace stele::command
