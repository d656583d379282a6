#include <algorithm>
#include <cstdio>

#include "commands.hpp"
#include "digest.hpp"

namespace stele::command {

namespace {

class DigestSink final : public PieceSink {
 public:
  DigestSink(Digest& digest, Progress& progress) : digest_(digest), progress_(progress) {}
  Status piece(std::span<const std::byte> bytes) override {
    digest_.update(bytes);
    return progress_.add(bytes.size()) ? Status() : Progress::cancelled();
  }

 private:
  Digest& digest_;
  Progress& progress_;
};

/// Returns the digest of each leaf's bytes.
Result<std::vector<std::string>> leaf_digests(const Snapshot& snapshot, const std::string& algorithm,
                                              Terminal& terminal) {
  std::vector<std::string> digests(snapshot.leaf_count());
  Progress progress(terminal, "hashing", snapshot.byte_size());
  STELE_TRY(for_each_leaf(snapshot, digests.size(), terminal.common().threads,
                          [&](std::size_t i, ReadContext& context) -> Status {
                            STELE_TRY_ASSIGN(Digest digest, Digest::make(algorithm));
                            DigestSink sink(digest, progress);
                            STELE_TRY(snapshot.leaf(i).stream(sink, context));
                            digests[i] = digest.finish();
                            return {};
                          }));
  return digests;
}

struct Hashed {
  std::vector<Named> names{};
  std::vector<std::string> digests{};  // of leaves
  std::string total{};
};

// The digest of all tensors is the digest of a text, version 2: the line "stele hash 2\n", then one for each name,
// sorted by bytes: "HEX  DTYPE  [2, 3]  BYTES  NAME\n". BYTES is the length of NAME, so that no name looks like several
// lines. It does not depend on the order of tensors in the file, or on ties.
Result<Hashed> hashed(const Snapshot& snapshot, const std::string& algorithm, Terminal& terminal) {
  Hashed found;
  STELE_TRY_ASSIGN(found.names, names_of(snapshot));
  STELE_TRY_ASSIGN(found.digests, leaf_digests(snapshot, algorithm, terminal));
  std::vector<const Named*> order;
  for (const Named& named : found.names) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) { return a->name < b->name; });
  STELE_TRY_ASSIGN(Digest total, Digest::make(algorithm));
  total.update("stele hash 2\n");
  for (const Named* const named : order) {
    const LeafView leaf = snapshot.leaf(named->leaf);
    total.update(found.digests[named->leaf] + "  " + std::string(name(leaf.dtype())) + "  " + to_string(leaf.shape()) +
                 "  " + std::to_string(named->name.size()) + "  " + named->name + "\n");
  }
  found.total = total.finish();
  return found;
}

Status hash_file(const Hash& options, const std::string& file, std::optional<Document>& document, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(file, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(const Hashed found, hashed(model.snapshot, options.algorithm, terminal));
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
