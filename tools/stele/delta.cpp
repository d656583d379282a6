// Deltas of weights: make one, apply several, join several.
#include <stele/delta.hpp>
#include <stele/recorders/any.hpp>

#include "commands.hpp"

namespace stele::command {

namespace {

/// Returns the options of a call that reads tensors.
LoadOptions reading(const Terminal& terminal, Progress& progress) {
  LoadOptions options;
  options.threads = terminal.common().threads;
  options.progress = progress.callback();
  return options;
}

Result<Snapshot> open_delta(const std::string& file, const Terminal& terminal) {
  STELE_TRY_ASSIGN(Model model, open_model(file, {}, terminal.common().threads));
  if (delta_info(model.snapshot)) return std::move(model.snapshot);
  return Error(Errc::invalid_argument, "the file is not a delta of weights")
      .file(file)
      .hint(model.format->name() == "steps" ? "a step is a whole model; the delta of a step is a file in its folder"
                                            : "stele delta makes one");
}

Error in_file(Error error, const std::string& file) {
  return error.file().empty() ? std::move(error).file(file) : std::move(error);
}

/// Writes a compressed delta, and prints its contents.
Result<int> write_delta(const Snapshot& delta, const DeltaOutput& to, const Report& losses, std::uint64_t whole_bytes,
                        Terminal& terminal) {
  Convert how;
  how.out = to.path;
  how.to = to.format;
  STELE_TRY_ASSIGN(const auto format, target_format(how.to, how.out));
  how.compress = format->name() == "stele";
  STELE_TRY_ASSIGN(const Destination destination, command::destination(how));
  STELE_TRY(check_output(destination.path));
  STELE_TRY(check_losses(to.allow_loss, losses));
  Progress progress(terminal, "writing");
  SaveOptions options;
  options.format = destination.format.get();
  options.threads = terminal.common().threads;
  options.allow_loss = to.allow_loss;
  options.progress = progress.callback();
  STELE_TRY_ASSIGN(const Report written, save(delta, destination.path, options));
  Report rows = losses;
  add_rows(rows, written);
  const auto info = delta_info(delta);
  const DeltaInfo counts = info ? *info : DeltaInfo();
  const auto bytes = open_file(destination.path);
  const std::uint64_t size = bytes ? (*bytes)->size() : 0;
  if (terminal.json()) {
    Document document(terminal, "stele.delta/1");
    document.member("out", Value(destination.path));
    document.member("base", Value(counts.base));
    document.member("next", Value(counts.next));
    document.member("unchanged", number(counts.unchanged));
    document.member("renamed", number(counts.renamed));
    document.member("changed", number(counts.changed));
    document.member("new", number(counts.added));
    document.member("bytes", number(size));
    document.member("bytes_of_tensors", number(whole_bytes));
    document.member("rows", to_value(rows));
    return exit_ok;
  }
  print_rows(terminal, rows);
  std::string line = "wrote " + safe(destination.path) + ", " + grouped(size) + " bytes for " + grouped(whole_bytes) +
                     ": " + counted(counts.changed, "tensor") + " changed, " + grouped(counts.unchanged) + " unchanged";
  if (counts.added != 0) line += ", " + grouped(counts.added) + " new";
  if (counts.renamed != 0) line += ", " + grouped(counts.renamed) + " renamed";
  terminal.note(line);
  return exit_ok;
}

/// Writes a folder in slime's layout.
Result<int> write_update(const Model& base, const Model& next, const Delta& options, const Report& losses,
                         Progress& progress, Terminal& terminal) {
  STELE_TRY(check_output(options.output.path));
  STELE_TRY(check_losses(options.output.allow_loss, losses));
  SaveOptions saving;
  saving.threads = terminal.common().threads;
  saving.allow_loss = options.output.allow_loss;
  saving.progress = progress.callback();
  STELE_TRY_ASSIGN(const Report written,
                   save_update(base.snapshot, next.snapshot, options.output.path, options.update, saving));
  Report rows = losses;
  add_rows(rows, written);
  if (terminal.json()) {
    Document document(terminal, "stele.update/1");
    document.member("out", Value(options.output.path));
    document.member("version", number(options.update.version));
    document.member("rows", to_value(rows));
    return exit_ok;
  }
  print_rows(terminal, rows);
  terminal.note("wrote " + safe(options.output.path) + ", version " + std::to_string(options.update.version));
  return exit_ok;
}

/// Applies a delta, or a folder in slime's layout.
Result<Snapshot> apply_one(const Snapshot& model, const std::string& file, const Terminal& terminal) {
  LoadOptions options;
  options.threads = terminal.common().threads;
  STELE_TRY_ASSIGN(const bool update, is_update(input_of(file)));
  if (update) return apply_update(model, input_of(file), options);
  STELE_TRY_ASSIGN(const Snapshot delta, open_delta(file, terminal));
  return apply_delta(model, delta);
}

Result<int> change_in_place(const Apply& options, Terminal& terminal) {
  const Opening& opening = options.opening;
  if (!options.output.format.empty() || !opening.part.empty() || !opening.tag.empty() || !opening.names.empty()) {
    return Error(Errc::invalid_argument, "--in-place changes the whole file, in its format")
        .hint("drop --to, --part, --tag and --names, or pass -o FILE");
  }
  Progress progress(terminal, "applying");
  STELE_TRY_ASSIGN(const bool changed, apply_in_place(options.base, options.deltas, reading(terminal, progress)));
  if (terminal.json()) {
    Document document(terminal, "stele.apply/1");
    document.member("out", Value(options.base));
    document.member("changed", Value(changed));
    return exit_ok;
  }
  const std::string file = safe(options.base);
  terminal.note(changed                  ? "changed " + file
                : options.deltas.empty() ? file + " has no interrupted change"
                                         : file + " is that version already");
  return exit_ok;
}

}  // namespace

Result<int> delta(const Delta& options, Terminal& terminal) {
  const unsigned threads = terminal.common().threads;
  STELE_TRY_ASSIGN(const Model base, open_model(options.base, options.opening_base, threads));
  STELE_TRY_ASSIGN(const Model next, open_model(options.next, options.opening_next, threads));
  STELE_TRY_ASSIGN(const Report losses, losses_of(next, options.opening_next, options.output.allow_loss, threads));
  Progress progress(terminal, "comparing");
  if (options.output.format == "update") return write_update(base, next, options, losses, progress, terminal);
  STELE_TRY_ASSIGN(const Snapshot made, make_delta(base.snapshot, next.snapshot, reading(terminal, progress)));
  return write_delta(made, options.output, losses, next.snapshot.byte_size(), terminal);
}

Result<int> compact(const Compact& options, Terminal& terminal) {
  std::vector<Snapshot> all;
  for (const std::string& file : options.files) {
    STELE_TRY_ASSIGN(Snapshot next, open_delta(file, terminal));
    if (!all.empty() && delta_info(all.back())->next != delta_info(next)->base) {
      return Error(Errc::checksum, "the delta does not follow the one before it")
          .file(file)
          .expected(delta_info(all.back())->next)
          .found(delta_info(next)->base);
    }
    all.push_back(std::move(next));
  }
  Progress progress(terminal, "joining");
  STELE_TRY_ASSIGN(const Snapshot joined, merge_deltas(all, reading(terminal, progress)));
  return write_delta(joined, options.output, {}, joined.byte_size(), terminal);
}

Result<int> apply(const Apply& options, Terminal& terminal) {
  if (options.in_place == !options.output.path.empty()) {
    return Error(Errc::invalid_argument, options.in_place ? "--in-place has no output" : "there is no output")
        .hint("pass -o FILE, or --in-place");
  }
  if (options.in_place) return change_in_place(options, terminal);
  if (options.deltas.empty()) return Error(Errc::invalid_argument, "there is no delta to apply");
  Target target{options.output.path, options.output.format};
  STELE_TRY_ASSIGN(const Model base, open_model(options.base, options.opening, terminal.common().threads));
  target.save.allow_loss = options.output.allow_loss;
  target.like = base.format.get();
  STELE_TRY_ASSIGN(target.losses, losses_of(base, options.opening, target.save.allow_loss, terminal.common().threads));
  Snapshot model = base.snapshot;
  for (const std::string& file : options.deltas) {
    auto next = apply_one(model, file, terminal);
    if (!next) return in_file(std::move(next).error(), file);
    model = *std::move(next);
  }
  return write_joined(target, model, "stele.apply/1", terminal);
}

}  // namespace stele::command
