#include <algorithm>
#include <utility>

#include "commands.hpp"
#include "facts/differences.hpp"
#include "other_differences.hpp"

namespace stele::command {

namespace {

/// Maximum length of a value's text in a table; --json has all of it.
constexpr std::size_t max_cell_bytes = 40;

std::string cell(const std::string& text) {
  return text.size() <= max_cell_bytes ? safe(text) : safe(text.substr(0, max_cell_bytes)) + "…";
}

void print_text(const Diff& options, const facts::Differences& found, Terminal& terminal) {
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
    const facts::Difference& row = found.rows[i];
    std::vector<std::string> cells{row.kind_name(), safe(row.name), cell(row.a), row.a == row.b ? "" : cell(row.b)};
    if (row.kind == facts::DifferenceKind::values) {
      const facts::Comparison& c = *row.numbers;
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
  const unsigned threads = terminal.common().threads;
  STELE_TRY_ASSIGN(const Model a, open_model(options.a, options.opening_a, threads));
  STELE_TRY_ASSIGN(const Model b, open_model(options.b, options.opening_b, threads));
  std::vector<OtherDifference> more;
  if (!options.tensors && options.only.empty()) {
    STELE_TRY_ASSIGN(
        more, checkpoint_differences(a, options.opening_a, b, options.opening_b, options.atol, options.rtol, terminal));
  }
  STELE_TRY_ASSIGN(const Snapshot numbers, with_numbers(a.snapshot));
  Progress progress(terminal, "comparing", numbers.byte_size());
  const facts::DifferenceOptions how{options.atol,         options.rtol,
                                     options.ignore_dtype, options.tensors,
                                     options.only,         loop_over(numbers, terminal, b.snapshot.in_order()),
                                     progress.advance()};
  const auto found =
      facts::differences(how, {a.format->name(), a.snapshot}, {b.format->name(), b.snapshot}, std::move(more));
  if (!found) return with_similar(found.error(), a.snapshot);
  if (terminal.json()) {
    Document document(terminal, "stele.diff/1");
    document.member("a", Value(options.a));
    document.member("b", Value(options.b));
    facts::describe(*found, document);
  } else {
    print_text(options, *found, terminal);
  }
  return found->rows.empty() ? exit_ok : exit_no;
}

}  // namespace stele::command
