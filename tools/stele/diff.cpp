#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <stele/pattern.hpp>

#include "commands.hpp"
#include "compare.hpp"
#include "other_differences.hpp"

namespace stele::command {

namespace {

enum class Kind : std::uint8_t { only_a, only_b, shape, other, values, dtype };

struct Row {
  Kind kind;
  std::string name;
  std::string a, b;  // dtype and shape, or the text of a value
  std::optional<Comparison> numbers{};
  std::string other{};  // the kind of an OtherDifference

  std::string kind_name() const {
    constexpr const char* names[] = {"only in A", "only in B", "shape", "", "values", "dtype"};
    return kind == Kind::other ? other : names[static_cast<std::size_t>(kind)];
  }
};

/// Maximum length of a value's text in a table; --json has all of it.
constexpr std::size_t max_cell_bytes = 40;

std::string cell(const std::string& text) {
  return text.size() <= max_cell_bytes ? safe(text) : safe(text.substr(0, max_cell_bytes)) + "…";
}

struct Pair {
  const Named* a;
  const Named* b;
  std::optional<Comparison> numbers{};
};

struct Differences {
  std::vector<Row> rows;
  std::uint64_t tensors = 0;      // that both have
  std::uint64_t equal = 0;        // different tensors within the tolerance
  std::uint64_t other_dtype = 0;  // different tensors with another dtype
  std::uint64_t others = 0;       // OtherDifferences
};

/// Compares the tensors that both files have with one shape; names with one pair of leaves, once.
Status compare_all(const Diff& options, const Snapshot& a, const Snapshot& b, std::vector<Pair>& pairs,
                   Terminal& terminal) {
  std::uint64_t total = 0;
  for (const Pair& pair : pairs) total += a.leaf(pair.a->leaf).byte_size();
  Progress progress(terminal, "comparing", total);
  const unsigned threads = b.in_order() ? 1 : terminal.common().threads;
  return for_each_leaf(a, pairs.size(), threads, [&](std::size_t i, ReadContext& context) -> Status {
    const LeafView left = a.leaf(pairs[i].a->leaf);
    const LeafView right = b.leaf(pairs[i].b->leaf);
    if (!std::equal(left.shape().begin(), left.shape().end(), right.shape().begin(), right.shape().end())) return {};
    auto result = compare_leaves(left, right, options.atol, options.rtol, context, progress);
    if (!result) {
      Error error = std::move(result).error();
      return error.path().empty() ? std::move(error).path(pairs[i].a->name) : std::move(error);
    }
    pairs[i].numbers = *result;
    return {};
  });
}

Result<Differences> differences(const Diff& options, const Model& model_a, const Model& model_b, Terminal& terminal) {
  const Snapshot& a = model_a.snapshot;
  const Snapshot& b = model_b.snapshot;
  STELE_TRY_ASSIGN(auto names_a, names_of(a));
  STELE_TRY_ASSIGN(auto names_b, names_of(b));
  pair_unnamed(model_a, names_a, model_b, names_b);
  const auto drop = [&](std::vector<Named>& names) {
    std::erase_if(names, [&](const Named& named) {
      return !options.only.empty() && std::none_of(options.only.begin(), options.only.end(),
                                                   [&](const auto& p) { return matches(p, named.name); });
    });
  };
  drop(names_a), drop(names_b);
  if (!options.only.empty() && names_a.empty() && names_b.empty()) {
    return with_similar(Error(Errc::not_found, "no tensor has a name that matches").path(options.only.front()), a);
  }
  std::map<std::string_view, const Named*> by_name;
  for (const Named& named : names_b) by_name.emplace(named.name, &named);
  Differences found;
  if (!options.tensors) {
    auto others = other_differences(a, names_a, b, names_b, options.only, options.atol, options.rtol);
    if (options.only.empty()) {
      STELE_TRY_ASSIGN(const auto more, checkpoint_differences(model_a, options.opening_a, model_b, options.opening_b,
                                                               options.atol, options.rtol, terminal));
      others.insert(others.end(), more.begin(), more.end());
    }
    found.others = others.size();
    for (OtherDifference& other : others) {
      found.rows.push_back({Kind::other, std::move(other.name), std::move(other.a), std::move(other.b), std::nullopt,
                            std::move(other.kind)});
    }
  }
  std::vector<Pair> pairs;
  for (const Named& named : names_a) {
    const auto other = by_name.find(named.name);
    if (other == by_name.end()) {
      found.rows.push_back({Kind::only_a, named.name, type_text(a.leaf(named.leaf)), ""});
      continue;
    }
    pairs.push_back({&named, other->second});
    by_name.erase(other);
  }
  for (const Named& named : names_b) {
    if (by_name.contains(named.name))
      found.rows.push_back({Kind::only_b, named.name, "", type_text(b.leaf(named.leaf))});
  }
  STELE_TRY_ASSIGN(const Snapshot numbers_a, with_numbers(a));
  STELE_TRY_ASSIGN(const Snapshot numbers_b, with_numbers(b));
  STELE_TRY(compare_all(options, numbers_a, numbers_b, pairs, terminal));
  found.tensors = pairs.size();
  for (const Pair& pair : pairs) {
    const LeafView left = a.leaf(pair.a->leaf);
    const LeafView right = b.leaf(pair.b->leaf);
    const bool other_dtype = left.dtype() != right.dtype();
    found.other_dtype += other_dtype ? 1 : 0;
    Row row{Kind::shape, pair.a->name, type_text(left), type_text(right), pair.numbers};
    if (pair.numbers) {
      const bool equal = pair.numbers->differing == 0;
      found.equal += equal ? 1 : 0;
      if (equal && (!other_dtype || options.ignore_dtype)) continue;
      row.kind = equal ? Kind::dtype : Kind::values;
    }
    found.rows.push_back(std::move(row));
  }
  // Structure first, then the largest difference.
  std::stable_sort(found.rows.begin(), found.rows.end(), [](const Row& x, const Row& y) {
    if (x.kind != y.kind) return x.kind < y.kind;
    return x.kind == Kind::values && x.numbers->max_abs > y.numbers->max_abs;
  });
  return found;
}

void print_json(const Diff& options, const Differences& found, Terminal& terminal) {
  Document document(terminal, "stele.diff/1");
  document.member("a", Value(options.a));
  document.member("b", Value(options.b));
  document.member("equal", Value(found.rows.empty()));
  document.member("tensors", number(found.tensors));
  document.member("equal_tensors", number(found.equal));
  document.member("other_dtype", number(found.other_dtype));
  document.member("other_differences", number(found.others));
  document.begin_list("differences");
  for (const Row& row : found.rows) {
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
    document.item(Value(std::move(map)));
  }
  document.end_list();
}

void print_text(const Diff& options, const Differences& found, Terminal& terminal) {
  Table table({{"difference"},
               {"name"},
               {"A"},
               {"B"},
               {"max |a-b|", true},
               {"max rel", true},
               {"rms", true},
               {"differing", true}});
  const std::size_t shown = options.largest == 0 ? found.rows.size() : std::min(options.largest, found.rows.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Row& row = found.rows[i];
    std::vector<std::string> cells{row.kind_name(), safe(row.name), cell(row.a), row.a == row.b ? "" : cell(row.b)};
    if (row.kind == Kind::values) {
      const Comparison& c = *row.numbers;
      cells.insert(cells.end(), {short_number(c.max_difference()), short_number(c.max_relative()),
                                 short_number(c.rms()), grouped(c.differing) + " of " + grouped(c.count)});
    } else {
      cells.resize(8);
    }
    table.row(std::move(cells));
  }
  if (!table.empty()) table.print(terminal);
  if (shown < found.rows.size()) terminal.print("and " + grouped(found.rows.size() - shown) + " more\n");
  std::string line = grouped(found.equal) + " of " + grouped(found.tensors) + " common tensors are equal";
  if (options.atol != 0 || options.rtol != 0) {
    line += " within " + short_number(options.atol) + " + " + short_number(options.rtol) + " * |b|";
  }
  if (found.tensors == 0) line = "the files have no tensor in common";
  if (found.others != 0) line += "; " + counted(found.others, "other difference");
  if (found.other_dtype != 0) line += "; " + grouped(found.other_dtype) + " have another dtype";
  terminal.print(terminal.paint(found.rows.empty() ? Style::good : Style::warning, line) + "\n");
}

}  // namespace

Result<int> diff(const Diff& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model a, open_model(options.a, options.opening_a, terminal.common().threads));
  STELE_TRY_ASSIGN(const Model b, open_model(options.b, options.opening_b, terminal.common().threads));
  STELE_TRY_ASSIGN(const Differences found, differences(options, a, b, terminal));
  terminal.json() ? print_json(options, found, terminal) : print_text(options, found, terminal);
  return found.rows.empty() ? exit_ok : exit_no;
}

}  // namespace stele::command
