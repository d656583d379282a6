#include <cstdio>

#include "commands.hpp"
#include "digest.hpp"

namespace stele::command {

namespace {

Status hash_file(const Hash& options, const std::string& file, std::optional<Document>& document, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(file, options.opening, terminal.common().threads));
  Progress progress(terminal, "hashing", model.snapshot.byte_size());
  STELE_TRY_ASSIGN(const facts::Hashed found, facts::hashed(
                                                  model.snapshot, [&] { return digest(options.algorithm); },
                                                  loop_over(model.snapshot, terminal), progress.advance()));
  if (document) {
    Value::List tensors;
    for (const Named& named : found.names) {
      tensors.emplace_back(Value::Map{{"name", Value(named.name)}, {"digest", Value(found.digests[named.leaf])}});
    }
    Value::Map row{{"file", Value(shown_path(model.path))}, {"digest", Value(found.total)}};
    if (!options.total_only) row.emplace_back("tensors", Value(std::move(tensors)));
    document->item(Value(std::move(row)));
    return {};
  }
  const std::string label =
      options.algorithm + std::string(options.algorithm.size() < 8 ? 8 - options.algorithm.size() : 0, ' ') + "  ";
  for (const Named& named : found.names) {
    if (options.total_only) break;
    terminal.print(label + found.digests[named.leaf] + "  " + safe(shown_path(model.path)) + ":" + safe(named.name) +
                   "\n");
  }
  terminal.print(label + found.total + "  " + safe(shown_path(model.path)) + "\n");
  return {};
}

}  // namespace

Result<int> hash(const Hash& options, Terminal& terminal) {
  std::optional<Document> document;
  if (terminal.json()) {
    document.emplace(terminal, "stele.hash/2");
    document->member("algorithm", Value(options.algorithm));
    document->begin_list("files");
  }
  int exit = exit_ok;
  for (const std::string& file : options.files) {
    const Status status = hash_file(options, file, document, terminal);
    if (status) continue;
    if (options.files.size() == 1 || interrupted()) return status.error();
    exit = exit_failed;
    if (document) {
      document->item(Value(Value::Map{{"file", Value(file)}, {"error", command::to_value(status.error())}}));
    } else {
      terminal.flush();
      std::fprintf(stderr, "stele: %s\n", error_text(status.error()).c_str());
    }
  }
  if (document) document->end_list();
  return exit;
}

}  // namespace stele::command
