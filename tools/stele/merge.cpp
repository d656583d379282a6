#include <stele/transform.hpp>

#include "commands.hpp"

namespace stele::command {

Result<int> write_joined(Target& target, const Snapshot& snapshot, const char* schema, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Report report, save_to(target, snapshot, terminal));
  if (terminal.json()) {
    Document document(terminal, schema);
    document.member("out", Value(target.path));
    document.member("tensors", number(static_cast<std::uint64_t>(snapshot.leaf_count())));
    document.member("rows", to_value(report));
    return exit_ok;
  }
  print_rows(terminal, report);
  terminal.note("wrote " + safe(target.path) + ", " + counted(snapshot.leaf_count(), "tensor"));
  return exit_ok;
}

Result<int> merge(const Merge& options, Terminal& terminal) {
  Target target{options.out, options.to};
  std::vector<Snapshot> snapshots;
  for (const std::string& file : options.files) {
    STELE_TRY_ASSIGN(Model model, open_model(file, {}, terminal.common().threads));
    STELE_TRY_ASSIGN(const Report losses, losses_of(model, {}, options.allow_loss, terminal.common().threads));
    add_rows(target.losses, losses);
    snapshots.push_back(std::move(model.snapshot));
  }
  STELE_TRY_ASSIGN(const Snapshot joined, options.overlay ? overlay(snapshots) : stele::merge(snapshots));
  target.save.allow_loss = options.allow_loss;
  return write_joined(target, joined, "stele.merge/1", terminal);
}

}  // namespace stele::command
