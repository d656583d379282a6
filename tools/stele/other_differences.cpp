#include "other_differences.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <stele/pattern.hpp>
#include <stele/value.hpp>

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

/// Strings that are in the metadata too are compared there.
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
  /// Returns the name that a name is tied to; empty if it is none.
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
