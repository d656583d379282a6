// Compares two models.
#include "facts/differences.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include <stele/pattern.hpp>

namespace stele::facts {

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

void pair_unnamed(std::string_view format_a, std::vector<Named>& names_a, std::string_view format_b,
                  std::vector<Named>& names_b) {
  const auto unnamed = [](std::string_view format) { return format == "npy" || format == "nnef-tensor"; };
  if (names_a.size() != 1 || names_b.size() != 1) return;
  if (unnamed(format_b)) {
    names_b[0].name = names_a[0].name;
  } else if (unnamed(format_a)) {
    names_a[0].name = names_b[0].name;
  }
}

std::string Difference::kind_name() const {
  constexpr const char* names[] = {"only in A", "only in B", "shape", "", "values", "dtype"};
  return kind == DifferenceKind::other ? other : names[static_cast<std::size_t>(kind)];
}

namespace {

struct Pair {
  const Named* a;
  const Named* b;
  std::optional<Comparison> numbers{};
};

/// Compares the tensors that both files have with one shape; names with one pair of leaves, once.
Status compare_all(const DifferenceOptions& options, const Snapshot& a, const Snapshot& b, std::vector<Pair>& pairs) {
  return options.loop(pairs.size(), [&](std::size_t i, ReadContext& context) -> Status {
    const LeafView left = a.leaf(pairs[i].a->leaf);
    const LeafView right = b.leaf(pairs[i].b->leaf);
    if (!std::equal(left.shape().begin(), left.shape().end(), right.shape().begin(), right.shape().end())) return {};
    auto result = compare_leaves(left, right, options.atol, options.rtol, context, options.advance);
    if (!result) {
      Error error = std::move(result).error();
      return error.path().empty() ? std::move(error).path(pairs[i].a->name) : std::move(error);
    }
    pairs[i].numbers = *result;
    return {};
  });
}

}  // namespace

Result<Differences> differences(const DifferenceOptions& options, const Side& side_a, const Side& side_b,
                                std::vector<OtherDifference> more) {
  const Snapshot& a = side_a.snapshot;
  const Snapshot& b = side_b.snapshot;
  STELE_TRY_ASSIGN(auto names_a, names_of(a));
  STELE_TRY_ASSIGN(auto names_b, names_of(b));
  pair_unnamed(side_a.format, names_a, side_b.format, names_b);
  const auto drop = [&](std::vector<Named>& names) {
    std::erase_if(names, [&](const Named& named) {
      return !options.only.empty() && std::none_of(options.only.begin(), options.only.end(),
                                                   [&](const auto& p) { return matches(p, named.name); });
    });
  };
  drop(names_a), drop(names_b);
  if (!options.only.empty() && names_a.empty() && names_b.empty()) {
    return Error(Errc::not_found, "no tensor has a name that matches").path(options.only.front());
  }
  std::map<std::string_view, const Named*> by_name;
  for (const Named& named : names_b) by_name.emplace(named.name, &named);
  Differences found;
  if (!options.tensors) {
    auto others = other_differences(a, names_a, b, names_b, options.only, options.atol, options.rtol);
    others.insert(others.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    found.others = others.size();
    for (OtherDifference& other : others) {
      found.rows.push_back({DifferenceKind::other, std::move(other.name), std::move(other.a), std::move(other.b),
                            std::nullopt, std::move(other.kind)});
    }
  }
  std::vector<Pair> pairs;
  for (const Named& named : names_a) {
    const auto other = by_name.find(named.name);
    if (other == by_name.end()) {
      found.rows.push_back({DifferenceKind::only_a, named.name, type_text(a.leaf(named.leaf)), ""});
      continue;
    }
    pairs.push_back({&named, other->second});
    by_name.erase(other);
  }
  for (const Named& named : names_b) {
    if (by_name.contains(named.name))
      found.rows.push_back({DifferenceKind::only_b, named.name, "", type_text(b.leaf(named.leaf))});
  }
  STELE_TRY_ASSIGN(const Snapshot numbers_a, with_numbers(a));
  STELE_TRY_ASSIGN(const Snapshot numbers_b, with_numbers(b));
  STELE_TRY(compare_all(options, numbers_a, numbers_b, pairs));
  found.tensors = pairs.size();
  for (const Pair& pair : pairs) {
    const LeafView left = a.leaf(pair.a->leaf);
    const LeafView right = b.leaf(pair.b->leaf);
    const bool other_dtype = left.dtype() != right.dtype();
    found.other_dtype += other_dtype ? 1 : 0;
    Difference row{DifferenceKind::shape, pair.a->name, type_text(left), type_text(right), pair.numbers};
    if (pair.numbers) {
      const bool equal = pair.numbers->differing == 0;
      found.equal += equal ? 1 : 0;
      if (equal && (!other_dtype || options.ignore_dtype)) continue;
      row.kind = equal ? DifferenceKind::dtype : DifferenceKind::values;
    }
    found.rows.push_back(std::move(row));
  }
  // Structure first, then the largest difference.
  std::stable_sort(found.rows.begin(), found.rows.end(), [](const Difference& x, const Difference& y) {
    if (x.kind != y.kind) return x.kind < y.kind;
    return x.kind == DifferenceKind::values && x.numbers->max_abs > y.numbers->max_abs;
  });
  return found;
}

void describe(const Differences& found, Members& out) {
  out.member("equal", Value(found.rows.empty()));
  out.member("tensors", number(found.tensors));
  out.member("equal_tensors", number(found.equal));
  out.member("other_dtype", number(found.other_dtype));
  out.member("other_differences", number(found.others));
  out.begin_list("differences");
  for (const Difference& row : found.rows) {
    Value::Map map{
        {"kind", Value(row.kind_name())}, {"name", Value(row.name)}, {"a", Value(row.a)}, {"b", Value(row.b)}};
    if (row.numbers) {
      map.emplace_back("max_abs", number(row.numbers->max_difference()));
      map.emplace_back("max_rel", number(row.numbers->max_relative()));
      map.emplace_back("rms", number(row.numbers->rms()));
      map.emplace_back("differing", number(row.numbers->differing));
      map.emplace_back("count", number(row.numbers->count));
      map.emplace_back("first", number(row.numbers->first));
    }
    out.item(Value(std::move(map)));
  }
  out.end_list();
}

}  // namespace stele::facts
