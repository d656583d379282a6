#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <stele/recover.hpp>
#include <stele/transform.hpp>

#include "commands.hpp"
#include "leaf_check.hpp"

namespace stele::command {

namespace {

/// Opens the readable part of the file, and lists the parts of an undamaged file that are not tensors.
Result<Recovered> open_damaged(const Repair& options, Report& losses, unsigned threads) {
  const Opening& opening = options.opening;
  STELE_TRY_ASSIGN(const LoadOptions reading, load_options(opening, threads));
  STELE_TRY_ASSIGN(auto format, input_format(options.in, opening, reading));
  STELE_TRY_ASSIGN(Recovered recovered, recover(*format, input_of(options.in), reading));
  note_input(options.in, format.get(), recovered.snapshot);
  for (const std::string& names : {opening.names, opening.parameters}) {
    if (!names.empty()) note_input(names, nullptr, {});
  }
  const Model model{options.in, std::move(format), recovered.snapshot};
  const auto tags = losses_of_tags(model, opening);
  if (tags) losses = *tags;  // else the save has a row for them
  if (recovered.notes.empty()) {
    const auto checkpoint = checkpoint_of(model, opening, threads);
    if (!checkpoint) losses.add(Report::What::lost, "", "the checkpoint: " + error_text(checkpoint.error()));
    if (checkpoint && *checkpoint) STELE_TRY(check_losses(options.allow_loss, losses_of(**checkpoint)));
  }
  if (!opening.part.empty()) {
    STELE_TRY_ASSIGN(recovered.snapshot, part(recovered.snapshot, opening.part));
  }
  return recovered;
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
    const std::string_view reason = unreadable_reason(snapshot.leaf(named.leaf));
    if (!reason.empty() && !errors[named.leaf]) rows.push_back({named.name, "", spelled(reason)});
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
