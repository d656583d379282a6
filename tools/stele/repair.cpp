#include <set>
#include <string>
#include <utility>

#include <stele/recover.hpp>
#include <stele/transform.hpp>

#include "commands.hpp"
#include "leaf_check.hpp"

namespace stele::command {

namespace {

/// Opens the file as far as it can be read, and lists what its format keeps beside the tensors. A choice of a part or
/// of names needs the format, which recover() chooses by itself.
Result<Recovered> open_damaged(const Repair& options, Report& losses, unsigned threads) {
  auto model = open_model(options.in, options.opening, threads);
  if (model) {
    auto beside = losses_of(*model, options.opening, threads);
    if (beside) losses = std::move(*beside);
    if (!beside) losses.add(Report::What::lost, "", "the checkpoint: " + error_text(beside.error()));
  }
  const Opening& opening = options.opening;
  const bool chosen = !opening.names.empty() || !opening.tag.empty() || !opening.part.empty() ||
                      opening.ignore_checksums || !opening.parameters.empty();
  if (chosen) {
    if (!model) return std::move(model).error();
    return Recovered{std::move(model->snapshot), std::string(model->format->name()), {}};
  }
  if (!model && model.error().code() == Errc::unsupported) return std::move(model).error();
  STELE_TRY_ASSIGN(const LoadOptions reading, load_options(opening, threads));
  STELE_TRY_ASSIGN(Recovered recovered, recover(input_of(options.in), reading));
  note_input(options.in, recovered.snapshot);
  return recovered;
}

/// Returns the reason why the file has no readable tensor under a name, or an empty string.
std::string unreadable_reason(const LeafView& leaf) {
  if (leaf.dtype() != DType::opaque || leaf.annotations() == nullptr) return {};
  const auto found = leaf.annotations()->find("unreadable");
  const std::string* const reason = found != leaf.annotations()->end() ? found->second.as_string() : nullptr;
  return reason != nullptr ? *reason : std::string();
}

}  // namespace

Result<int> repair(const Repair& options, Terminal& terminal) {
  Target target{options.out};
  STELE_TRY_ASSIGN(const Recovered recovered, open_damaged(options, target.losses, terminal.common().threads));
  const Snapshot& snapshot = recovered.snapshot;
  STELE_TRY_ASSIGN(const auto errors, damaged_leaves(snapshot, terminal));
  STELE_TRY_ASSIGN(auto rows, damages(snapshot, errors));
  STELE_TRY_ASSIGN(const auto names, names_of(snapshot));
  for (const Named& named : names) {
    std::string reason = unreadable_reason(snapshot.leaf(named.leaf));
    if (!reason.empty() && !errors[named.leaf]) rows.push_back({named.name, "", std::move(reason)});
  }
  std::set<std::string, std::less<>> lost;
  for (const Damage& row : rows) lost.insert(row.name);
  Snapshot whole = snapshot;
  if (!lost.empty()) {
    STELE_TRY_ASSIGN(
        whole,
        filter(snapshot, {.keep = [&](std::string_view path, const LeafView*) { return !lost.contains(path); }}));
  }
  target.save.allow_loss = options.allow_loss;
  STELE_TRY_ASSIGN(const Report report, save_to(target, whole, terminal));
  if (terminal.json()) {
    Document document(terminal, "stele.repair/1");
    document.member("in", Value(options.in));
    document.member("out", Value(target.path));
    document.member("format", Value(recovered.format));
    document.member("recovered", number(static_cast<std::uint64_t>(whole.leaf_count())));
    document.begin_list("notes");
    for (const std::string& note : recovered.notes) document.item(Value(note));
    document.end_list();
    document.begin_list("lost");
    for (const Damage& row : rows) {
      document.item(
          Value(Value::Map{{"name", Value(row.name)}, {"range", Value(row.range)}, {"error", Value(row.error)}}));
    }
    document.end_list();
    document.member("rows", to_value(report));
  } else {
    for (const std::string& note : recovered.notes) terminal.print(safe(note) + "\n");
    for (const Damage& row : rows) {
      terminal.print(terminal.paint(Style::bad, "lost") + " " + safe(row.name) + ": " + row.range +
                     (row.range.empty() ? "" : ": ") + safe(row.error) + "\n");
    }
    print_rows(terminal, report);
    terminal.print("recovered " + grouped(whole.leaf_count()) + " of " + grouped(snapshot.leaf_count()) +
                   " tensors to " + safe(target.path) + "\n");
  }
  return rows.empty() && recovered.notes.empty() ? exit_ok : exit_no;
}

}  // namespace stele::command
