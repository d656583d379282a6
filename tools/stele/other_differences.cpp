#include "other_differences.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <stele/pattern.hpp>
#include <stele/value.hpp>

#include "compare.hpp"

namespace stele::command {

namespace {

/// Values by their paths or keys.
using Entries = std::map<std::string, const Value*>;

Entries plain_values(const Snapshot& snapshot, const std::vector<std::string>& patterns) {
  Entries entries;
  const auto nodes = snapshot.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != NodeKind::value) continue;
    std::string path = snapshot.path(i);
    const bool wanted = patterns.empty() || std::any_of(patterns.begin(), patterns.end(),
                                                        [&](const auto& pattern) { return matches(pattern, path); });
    if (wanted) entries.emplace(std::move(path), &snapshot.value(nodes[i]));
  }
  return entries;
}

/// Strings that are also in the metadata are compared there.
Entries properties(const Snapshot& snapshot) {
  Entries entries;
  const Value::Map* const map = snapshot.properties().as_map();
  if (map == nullptr) return entries;
  for (const auto& [key, value] : *map) {
    if (value.as_string() == nullptr || !snapshot.metadata().contains(key)) entries.emplace(key, &value);
  }
  return entries;
}

std::string text_of(const Value* value) { return value == nullptr ? "" : to_json(*value).value_or("?"); }

void compare_entries(const std::string& kind, const Entries& a, const Entries& b, double atol, double rtol,
                     std::vector<OtherDifference>& out) {
  const auto find = [](const Entries& in, const std::string& key) {
    const auto at = in.find(key);
    return at != in.end() ? at->second : nullptr;
  };
  Entries all = a;
  all.insert(b.begin(), b.end());
  for (const auto& entry : all) {
    const Value* const left = find(a, entry.first);
    const Value* const right = find(b, entry.first);
    std::string x = text_of(left), y = text_of(right);
    if (x == y) continue;
    const double* const number_a = left != nullptr ? left->as_f64() : nullptr;
    const double* const number_b = right != nullptr ? right->as_f64() : nullptr;
    if (number_a != nullptr && number_b != nullptr &&
        std::abs(*number_a - *number_b) <= atol + rtol * std::abs(*number_b)) {
      continue;
    }
    out.push_back({kind, entry.first, std::move(x), std::move(y)});
  }
}

/// The leaves of a file by name, and the first of the names that `other` has too.
struct Ties {
  std::map<std::string_view, std::uint32_t> leaf_of;
  std::map<std::uint32_t, std::string_view> first;

  Ties(const std::vector<Named>& names, const std::vector<Named>& other) {
    std::map<std::string_view, bool> known;
    for (const Named& named : other) known.emplace(named.name, true);
    for (const Named& named : names) {
      if (!known.contains(named.name)) continue;
      leaf_of.emplace(named.name, named.leaf);
      const auto [at, fresh] = first.emplace(named.leaf, named.name);
      if (!fresh) at->second = std::min<std::string_view>(at->second, named.name);
    }
  }
  /// Returns the name that a name is tied to; empty if it is not tied.
  std::string of(std::string_view name) const {
    const std::string_view to = first.at(leaf_of.at(name));
    return to == name ? "" : "tied to " + std::string(to);
  }
};

}  // namespace

std::vector<OtherDifference> other_differences(const Snapshot& a, const std::vector<Named>& names_a, const Snapshot& b,
                                               const std::vector<Named>& names_b,
                                               const std::vector<std::string>& patterns, double atol, double rtol) {
  std::vector<OtherDifference> out;
  const Ties ties_a(names_a, names_b);
  const Ties ties_b(names_b, names_a);
  for (const auto& entry : ties_a.leaf_of) {
    std::string x = ties_a.of(entry.first), y = ties_b.of(entry.first);
    if (x != y) out.push_back({"tie", std::string(entry.first), std::move(x), std::move(y)});
  }
  compare_entries("plain value", plain_values(a, patterns), plain_values(b, patterns), atol, rtol, out);
  if (!patterns.empty()) return out;
  std::map<std::string, Value> texts_a, texts_b;
  Entries metadata_a, metadata_b;
  for (const auto& [key, text] : a.metadata()) metadata_a[key] = &texts_a.emplace(key, Value(text)).first->second;
  for (const auto& [key, text] : b.metadata()) metadata_b[key] = &texts_b.emplace(key, Value(text)).first->second;
  compare_entries("metadata", metadata_a, metadata_b, 0, 0, out);
  compare_entries("property", properties(a), properties(b), 0, 0, out);
  return out;
}

namespace {

/// Compares the tensors of one kind of optimizer state.
Status compare_kind(const std::string& kind, const Snapshot& a, const Snapshot& b, double atol, double rtol,
                    Progress& progress, std::vector<OtherDifference>& out) {
  STELE_TRY_ASSIGN(const auto names_a, names_of(a));
  STELE_TRY_ASSIGN(const auto names_b, names_of(b));
  using Pair = std::pair<std::optional<LeafView>, std::optional<LeafView>>;
  std::map<std::string_view, Pair> all;
  for (const Named& named : names_a) all[named.name].first = a.leaf(named.leaf);
  for (const Named& named : names_b) all[named.name].second = b.leaf(named.leaf);
  ReadContext context;
  for (const auto& [tensor, leaves] : all) {
    std::string x = leaves.first ? type_text(*leaves.first) : "";
    std::string y = leaves.second ? type_text(*leaves.second) : "";
    if (x == y) {
      STELE_TRY_ASSIGN(const Comparison numbers,
                       compare_leaves(*leaves.first, *leaves.second, atol, rtol, context, progress));
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
  for (const auto& [kind, states] : kinds) {
    STELE_TRY(compare_kind(kind, states.first, states.second, atol, rtol, progress, out));
  }
  return out;
}

void pair_unnamed(const Model& a, std::vector<Named>& names_a, const Model& b, std::vector<Named>& names_b) {
  const auto unnamed = [](const Model& model) {
    return model.format->name() == "npy" || model.format->name() == "nnef-tensor";
  };
  if (names_a.size() != 1 || names_b.size() != 1) return;
  if (unnamed(b)) {
    names_b[0].name = names_a[0].name;
  } else if (unnamed(a)) {
    names_a[0].name = names_b[0].name;
  }
}

}  // namespace stele::command
