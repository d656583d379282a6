#include <algorithm>
#include <optional>
#include <utility>

#include <stele/format.hpp>

#include "commands.hpp"
#include "leaf_check.hpp"

namespace stele::command {

namespace {

/// Returns true for errors that do not mean damage.
bool not_about_content(Errc code) {
  switch (code) {
    case Errc::io:
    case Errc::not_found:
    case Errc::unsupported:
    case Errc::invalid_argument:
    case Errc::needs_layout:
    case Errc::out_of_memory:
    case Errc::cancelled:
      return true;
    default:
      return false;
  }
}

struct Verdict {
  std::string file;
  std::string format{};
  std::optional<Error> error{};
  Report report{};
  std::vector<Damage> damaged{};
};

Verdict check(const std::string& file, const Opening& opening, Terminal& terminal) {
  Verdict verdict{file};
  auto model = open_model(file, opening, terminal.common().threads);
  if (!model) {
    verdict.error = std::move(model).error();
    return verdict;
  }
  verdict.format = model->format->name();
  auto options = load_options(opening, terminal.common().threads);
  if (!options) {
    verdict.error = std::move(options).error();
    return verdict;
  }
  {
    Progress progress(terminal, "verifying");
    options->progress = progress.callback();
    auto report = stele::verify(*model->format, input_of(file), *options);
    if (report) {
      verdict.report = std::move(*report);
      return verdict;
    }
    verdict.error = std::move(report).error();
  }
  if (not_about_content(verdict.error->code())) return verdict;
  const auto errors = damaged_leaves(model->snapshot, terminal);
  if (!errors) return verdict;
  if (auto rows = damages(model->snapshot, *errors)) verdict.damaged = std::move(*rows);
  return verdict;
}

void print(const Verdict& verdict, Terminal& terminal) {
  const std::string file = safe(verdict.file);
  if (!verdict.error) {
    terminal.print(file + ": " + terminal.paint(Style::good, "ok") + ", " + verdict.format + "\n");
    for (std::size_t i = 0; i < verdict.report.size(); ++i) {
      const Report::Row row = verdict.report[i];
      terminal.print("  not checked: " + safe(row.path) + (row.detail.empty() ? "" : ": ") + safe(row.detail) + "\n");
    }
    return;
  }
  const char* const word = verdict.error->message() == not_a_model_text ? "not checked"
                           : verdict.error->code() == Errc::unsupported ? "unsupported"
                           : not_about_content(verdict.error->code())   ? "failed"
                                                                        : "damaged";
  terminal.print(file + ": " + terminal.paint(Style::bad, word) + ", " + error_text(*verdict.error) + "\n");
  for (const Damage& damage : verdict.damaged) {
    terminal.print("  " + safe(damage.name) + ": " + damage.range + (damage.range.empty() ? "" : ": ") +
                   safe(damage.error) + "\n");
  }
}

Value verdict_value(const Verdict& verdict) {
  Value::Map map{{"file", Value(verdict.file)}, {"ok", Value(!verdict.error)}};
  if (!verdict.format.empty()) map.emplace_back("format", Value(verdict.format));
  if (verdict.error) map.emplace_back("error", to_value(*verdict.error));
  map.emplace_back("unchecked", to_value(verdict.report));
  Value::List rows;
  for (const Damage& damage : verdict.damaged) {
    rows.emplace_back(
        Value::Map{{"name", Value(damage.name)}, {"range", Value(damage.range)}, {"error", Value(damage.error)}});
  }
  map.emplace_back("damaged", Value(std::move(rows)));
  return Value(std::move(map));
}

}  // namespace

Result<int> verify(const Verify& options, Terminal& terminal) {
  std::optional<Document> document;
  if (terminal.json()) {
    document.emplace(terminal, "stele.verify/1");
    document->begin_list("files");
  }
  int status = exit_ok;
  for (const std::string& file : options.files) {
    if (interrupted()) return Progress::cancelled();
    const Verdict verdict = check(file, options.opening, terminal);
    if (verdict.error) status = std::max<int>(status, not_about_content(verdict.error->code()) ? exit_failed : exit_no);
    if (document) {
      document->item(verdict_value(verdict));
    } else {
      print(verdict, terminal);
    }
  }
  if (document) document->end_list();
  return status;
}

}  // namespace stele::command
