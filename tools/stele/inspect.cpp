#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include <stele/composite.hpp>

#include "commands.hpp"
#include "elements.hpp"
#include "facts/describe.hpp"
#include "statistics.hpp"

#include "io/urls.hpp"

namespace stele::command {

using facts::bytes_of;
using facts::dtype_text;
using facts::MoreFacts;
using facts::Sums;
using facts::sums_of;
using facts::Totals;

namespace {

/// Maximum columns of a line of metadata; --verbose and --json have all of it.
constexpr std::size_t max_columns = 100;
constexpr std::size_t min_text_columns = 40;  // next to a long key

/// Returns safe text of at most `max` columns, with its size in bytes if it is cut.
std::string shortened(std::string_view text, std::size_t max) {
  std::string line = safe(text.substr(0, 4 * max));
  if (line.size() >= text.size() && columns(line) <= max) return line;
  const std::string end = "… (" + grouped(text.size()) + " bytes)";
  std::size_t bytes = 0;
  for (std::size_t left = max - columns(end); bytes < line.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(line[bytes]) & 0xc0U) != 0x80;
    if (begins && left-- == 0) break;
  }
  return line.substr(0, bytes) + end;
}

/// The largest power of two, up to 4096, that divides an offset.
std::uint64_t alignment(std::uint64_t offset) { return std::min<std::uint64_t>(offset & (~offset + 1), 4096); }

std::string shape_text(const LeafView& leaf) { return to_string(leaf.shape()); }

MoreFacts training_facts(const Model& model, const Inspect& options, unsigned threads) {
  MoreFacts facts;
  const CheckpointFormat* const format = model.format->checkpoints();
  if (format == nullptr) return facts;
  const auto settings = load_options(options.opening, threads);
  if (!settings) return facts;
  const auto checkpoint = open_checkpoint(*format, input_of(model.path), *settings);
  if (!checkpoint) {
    if (checkpoint.error().code() != Errc::not_found) facts.emplace_back("training", error_text(checkpoint.error()));
    return facts;
  }
  if (checkpoint->graph && !checkpoint->graph->operations.empty()) {
    facts.emplace_back("graph", counted(checkpoint->graph->operations.size(), "operation") + ", " +
                                    counted(checkpoint->graph->variables.size(), "variable"));
  }
  if (const auto& training = checkpoint->training) {
    facts.emplace_back("training", training->updater.type + ", " +
                                       counted(static_cast<std::uint64_t>(training->iteration_count), "iteration") +
                                       ", " + counted(static_cast<std::uint64_t>(training->epoch_count), "epoch"));
  }
  std::string kinds;
  for (const auto& [kind, state] : checkpoint->optimizer.kinds()) {
    kinds += (kinds.empty() ? "" : ", ") + kind + " (" + std::to_string(state.leaf_count()) + " tensors)";
  }
  if (!kinds.empty()) facts.emplace_back("optimizer", kinds);
  return facts;
}

constexpr std::array<const char*, 8> statistics_titles{"min", "max", "mean", "std", "norm", "zeros", "nan", "inf"};

std::vector<std::string> statistics_cells(const Statistics& s) {
  if (s.count == 0) return {"", "", "", "", "", "", "", ""};
  const auto text = [&](double d) { return s.finite() == 0 ? std::string("-") : short_number(d); };
  const auto count = [](std::uint64_t n) { return n == 0 ? std::string() : grouped(n); };
  return {text(s.min),    text(s.max),    text(s.mean),  text(s.deviation()),
          text(s.norm()), count(s.zeros), count(s.nans), count(s.infinities)};
}

/// Returns the text of the last column: quantization, the name of opaque blocks, compression.
std::string stored_text(const LeafView& leaf) {
  if (const auto parts = composite(leaf)) {
    return std::to_string(parts->bits) + " bits, groups of " + grouped(parts->group) + ", " +
           std::to_string(parts->parts.size()) + " parts";
  }
  std::string text(leaf.encoding());
  const Annotations* const annotations = leaf.annotations();
  if (annotations == nullptr) return text;
  for (const auto& [key, value] : *annotations) {
    if (!text.empty()) text += ", ";
    text += safe(key);
    const std::string* word = value.as_string();
    for (const char* const kind : {"scheme", "is"}) {
      if (const Value* found = value.find(kind)) word = found->as_string();
    }
    if (word != nullptr) text += " " + safe(spelled(*word));
  }
  return text;
}

void print_table(const Snapshot& snapshot, const std::vector<Named>& names, const std::vector<Statistics>& statistics,
                 Terminal& terminal) {
  std::vector<Table::Column> columns{{"name"}, {"dtype"}, {"shape"}, {"bytes", true}};
  if (statistics.empty()) {
    columns.insert(columns.end(), {{"offset", true}, {"align", true}, {"stored"}});
  } else {
    for (const char* title : statistics_titles) columns.push_back({title, true});
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const LeafView leaf = snapshot.leaf(names[i].leaf);
    std::vector<std::string> cells{safe(names[i].name), dtype_text(leaf), shape_text(leaf), grouped(bytes_of(leaf))};
    if (statistics.empty()) {
      const auto place = leaf.location();
      cells.push_back(place ? std::to_string(place->offset) : "");
      cells.push_back(place ? std::to_string(alignment(place->offset)) : "");
      cells.push_back(names[i].tied ? "tied" : stored_text(leaf));
    } else {
      const auto more = statistics_cells(statistics[i]);
      cells.insert(cells.end(), more.begin(), more.end());
    }
    table.row(std::move(cells));
  }
  table.print(terminal);
}

struct Branch {
  Totals totals{};
  std::map<std::string_view, std::size_t> children{};
  std::vector<std::pair<std::string_view, std::size_t>> order{};
  const Named* tensor = nullptr;
};

/// Returns statistics for the end of a line: "  min -1  max 1 ...".
std::string statistics_text(const Statistics& s) {
  std::string text;
  const auto cells = statistics_cells(s);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i].empty()) text += "  " + std::string(statistics_titles.at(i)) + " " + cells[i];
  }
  return text;
}

void print_tree(const Snapshot& snapshot, const std::vector<Named>& names, const std::vector<Statistics>& statistics,
                Terminal& terminal) {
  std::vector<Branch> branches(1);
  for (const Named& named : names) {
    std::size_t at = 0;
    for (const std::string_view part : segments(named.name)) {
      if (!named.tied) branches[at].totals.add(snapshot.leaf(named.leaf));
      const auto [child, is_new] = branches[at].children.try_emplace(part, branches.size());
      const std::size_t next = child->second;
      if (is_new) {
        branches[at].order.emplace_back(part, next);
        branches.emplace_back();
      }
      at = next;
    }
    branches[at].tensor = &named;
  }
  struct Open {
    std::size_t branch, next;
    std::string indent;
  };
  std::vector<Open> stack{{0, 0, ""}};
  while (!stack.empty()) {
    Open& open = stack.back();
    if (open.next == branches[open.branch].order.size()) {
      stack.pop_back();
      continue;
    }
    const auto [part, index] = branches[open.branch].order[open.next++];
    const bool last = open.next == branches[open.branch].order.size();
    const Branch& branch = branches[index];
    std::string line = terminal.paint(Style::dim, open.indent + (last ? "└─ " : "├─ "));
    if (branch.tensor != nullptr) {
      const LeafView leaf = snapshot.leaf(branch.tensor->leaf);
      line += safe(part) + "  " + dtype_text(leaf) + " " + shape_text(leaf) + "  " +
              terminal.paint(Style::dim, branch.tensor->tied ? "tied" : human_bytes(bytes_of(leaf)));
      if (!statistics.empty())
        line += statistics_text(statistics[static_cast<std::size_t>(branch.tensor - names.data())]);
    } else {
      line += terminal.paint(Style::heading, safe(part)) + "  " +
              terminal.paint(Style::dim, counted(branch.totals.tensors, "tensor") + ", " +
                                             counted(branch.totals.elements, "element") + ", " +
                                             human_bytes(branch.totals.bytes));
    }
    terminal.print(line + "\n");
    std::string indent = open.indent + (last ? "   " : "│  ");
    stack.push_back({index, 0, std::move(indent)});
  }
}

void print_totals(const Sums& sums, std::size_t ties, Terminal& terminal) {
  terminal.print("\n" + terminal.paint(Style::heading, counted(sums.all.tensors, "tensor") + ", " +
                                                           counted(sums.all.elements, "element") + ", " +
                                                           human_bytes(sums.all.bytes)));
  if (ties != 0) terminal.print(", " + grouped(ties) + " more names of them");
  terminal.print("\n");
  const auto lines = [&](const char* title, const std::map<std::string, Totals>& by, std::size_t max_rows) {
    if (by.size() < 2) return;
    std::vector<std::pair<std::string, Totals>> sorted(by.begin(), by.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    Table table({{title}, {"tensors", true}, {"elements", true}, {"bytes", true}});
    for (std::size_t i = 0; i < std::min(max_rows, sorted.size()); ++i) {
      const auto& [key, totals] = sorted[i];
      table.row({key.empty() ? "(top)" : safe(key), grouped(totals.tensors), grouped(totals.elements),
                 human_bytes(totals.bytes)});
    }
    terminal.print("\n");
    table.print(terminal);
    if (sorted.size() > max_rows) terminal.print("and " + grouped(sorted.size() - max_rows) + " more\n");
  };
  lines("dtype", sums.by_dtype, 100);
  lines("module", sums.by_module, 20);
}

/// Returns the number of the file's values: nodes that are neither tensors nor containers.
std::size_t value_count(const Snapshot& snapshot) {
  const auto nodes = snapshot.nodes();
  return static_cast<std::size_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.kind == NodeKind::value; }));
}

/// The part of a file that is listed.
struct Listing {
  Model model;
  std::vector<Named> names{};
  std::vector<Statistics> statistics{};
  Sums sums{};
  MoreFacts facts{};
  std::size_t ties = 0;
};

/// Returns a property as JSON, a long list as its first elements and their number.
std::string property_text(const Value& value) {
  constexpr std::size_t shown = 4;
  const Value::List* const list = value.as_list();
  if (list == nullptr || list->size() <= shown) return to_json(value).value_or("");
  std::string text = to_json(Value(Value::List(list->begin(), list->begin() + shown))).value_or("[]");
  text.pop_back();
  return text + ", ...] (" + grouped(list->size()) + ")";
}

void print_heading(const Model& model, const MoreFacts& facts, bool verbose, Terminal& terminal) {
  terminal.print(terminal.paint(Style::heading, safe(shown_path(model.path))) + "  " +
                 std::string(model.format->name()) + "\n");
  const auto line = [&](const std::string& key, std::string_view text) {
    const std::string shown = safe(key);
    const std::size_t left = max_columns - std::min(max_columns - min_text_columns, columns(shown) + 4);
    terminal.print("  " + terminal.paint(Style::dim, shown) + "  " + (verbose ? safe(text) : shortened(text, left)) +
                   "\n");
  };
  for (const auto& [key, text] : model.snapshot.origin()) line(key, text);
  for (const auto& [key, text] : model.snapshot.metadata()) line(key, text);
  if (const Value::Map* const properties = model.snapshot.properties().as_map()) {
    for (const auto& [key, value] : *properties) {
      if (value.as_string() == nullptr) line(key, property_text(value));
    }
  }
  for (const auto& [key, text] : facts) line(key, text);
  for (const std::string& note : model.snapshot.notes()) line("note", note);
  if (const std::size_t values = value_count(model.snapshot); values != 0) {
    line("values", grouped(values) + " (numbers, strings and the like; --json prints them)");
  }
  terminal.print("\n");
}

/// Removes a pattern from the end of the words, if the last one names no file.
std::string take_pattern(std::vector<std::string>& words) {
  std::error_code none;
  if (words.size() < 2 || words.back() == "-" || detail::is_url(words.back())) return {};
  if (std::filesystem::exists(path_of(words.back()), none)) return {};
  std::string pattern = std::move(words.back());
  words.pop_back();
  return pattern;
}

Result<Listing> list(const Inspect& options, Model model, Terminal& terminal) {
  Listing listing{std::move(model)};
  const Snapshot& snapshot = listing.model.snapshot;
  std::vector<std::string> patterns;
  if (!options.only.empty()) patterns.push_back(options.only);
  STELE_TRY_ASSIGN(listing.names, names_of(snapshot, patterns));
  auto& names = listing.names;
  listing.sums = sums_of(snapshot, names);
  listing.ties =
      static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](const Named& n) { return n.tied; }));
  if (options.largest != 0) {
    std::stable_sort(names.begin(), names.end(), [&](const Named& a, const Named& b) {
      return bytes_of(snapshot.leaf(a.leaf)) > bytes_of(snapshot.leaf(b.leaf));
    });
    if (names.size() > options.largest) names.resize(options.largest);
  }
  if (options.stats) {
    STELE_TRY_ASSIGN(const Snapshot numbers, with_numbers(snapshot));
    STELE_TRY_ASSIGN(listing.statistics, statistics_of(numbers, names, terminal));
  }
  listing.facts = training_facts(listing.model, options, terminal.common().threads);
  return listing;
}

Status inspect_file(const Inspect& options, const std::string& file, Document& document, Terminal& terminal) {
  const bool several = options.files.size() > 1;
  STELE_TRY_ASSIGN(Model model, open_model(file, options.opening, terminal.common().threads));
  if (!options.print.empty()) {
    STELE_TRY_ASSIGN(const Snapshot numbers, with_numbers(model.snapshot));
    if (several && !terminal.json()) terminal.print(terminal.paint(Style::heading, safe(file)) + "\n");
    return print_elements(numbers, options.print, options.max_print, document, terminal);
  }
  STELE_TRY_ASSIGN(const Listing listing, list(options, std::move(model), terminal));
  if (terminal.json()) {
    if (!several) document.member("file", Value(file));
    facts::describe({listing.model.format->name(), listing.model.snapshot, listing.names, listing.statistics,
                     listing.sums, listing.facts},
                    document);
    return {};
  }
  print_heading(listing.model, listing.facts, options.verbose, terminal);
  if (options.tree) {
    print_tree(listing.model.snapshot, listing.names, listing.statistics, terminal);
  } else {
    print_table(listing.model.snapshot, listing.names, listing.statistics, terminal);
  }
  print_totals(listing.sums, listing.ties, terminal);
  return {};
}

/// Prints each file, or the error of it. Returns the exit status.
Result<int> inspect_files(const Inspect& options, Document& document, Terminal& terminal) {
  int exit = exit_ok;
  if (terminal.json()) document.begin_list("files");
  for (const std::string& file : options.files) {
    if (terminal.json()) {
      document.begin_object();
      document.member("file", Value(file));
    } else if (&file != &options.files.front()) {
      terminal.print("\n");
    }
    const Status status = inspect_file(options, file, document, terminal);
    if (interrupted()) return Progress::cancelled();
    if (!status) {
      exit = exit_failed;
      Error error = status.error();
      if (error.file().empty()) error = std::move(error).file(file);
      if (terminal.json()) {
        document.member("error", command::to_value(error));
      } else {
        terminal.flush();
        std::fprintf(stderr, "stele: %s\n", error_text(error).c_str());
      }
    }
    if (terminal.json()) document.end_object();
  }
  return exit;
}

}  // namespace

Result<int> inspect(const Inspect& given, Terminal& terminal) {
  Inspect options = given;
  if (options.only.empty()) options.only = take_pattern(options.files);
  Document document(terminal, options.print.empty() ? "stele.inspect/1" : "stele.values/1");
  if (options.files.size() > 1) return inspect_files(options, document, terminal);
  const Status status = inspect_file(options, options.files.front(), document, terminal);
  if (status) return exit_ok;
  Error error = status.error();
  const bool word = given.only != options.only && error.path() == options.only && error.hint().empty();
  return word ? std::move(error).hint("no file has this name, either") : error;
}

}  // namespace stele::command
