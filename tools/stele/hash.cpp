#include <algorithm>
#include <numeric>

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

}  // namespace

// The digest of all tensors is the digest of a text, version 2: the line "stele hash 2\n", then one for each name,
// sorted by
// bytes: "HEX  DTYPE  [2, 3]  BYTES  NAME\n". BYTES is the length of NAME, so that no name looks like several lines. It
// does not depend on the order of tensors in the file, or on ties.
Result<int> hash(const Hash& options, Terminal& terminal) {
  std::optional<Document> document;
  if (terminal.json()) {
    document.emplace(terminal, "stele.hash/2");
    document->member("algorithm", Value(options.algorithm));
    document->begin_list("files");
  }
  const std::string label =
      options.algorithm + std::string(options.algorithm.size() < 8 ? 8 - options.algorithm.size() : 0, ' ') + "  ";
  for (const std::string& file : options.files) {
    STELE_TRY_ASSIGN(const Model model, open_model(file, options.opening, terminal.common().threads));
    STELE_TRY_ASSIGN(const auto names, names_of(model.snapshot));
    STELE_TRY_ASSIGN(const auto digests, leaf_digests(model.snapshot, options.algorithm, terminal));
    std::vector<std::size_t> order(names.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return names[a].name < names[b].name; });
    STELE_TRY_ASSIGN(Digest total, Digest::make(options.algorithm));
    total.update("stele hash 2\n");
    for (const std::size_t i : order) {
      const LeafView leaf = model.snapshot.leaf(names[i].leaf);
      total.update(digests[names[i].leaf] + "  " + std::string(name(leaf.dtype())) + "  " + to_string(leaf.shape()) +
                   "  " + std::to_string(names[i].name.size()) + "  " + names[i].name + "\n");
    }
    const std::string all = total.finish();
    if (document) {
      Value::List tensors;
      for (const Named& named : names) {
        tensors.emplace_back(Value::Map{{"name", Value(named.name)}, {"digest", Value(digests[named.leaf])}});
      }
      Value::Map row{{"file", Value(shown_path(model.path))}, {"digest", Value(all)}};
      if (!options.total_only) row.emplace_back("tensors", Value(std::move(tensors)));
      document->item(Value(std::move(row)));
      continue;
    }
    for (const Named& named : names) {
      if (!options.total_only)
        terminal.print(label + digests[named.leaf] + "  " + safe(shown_path(model.path)) + ":" + safe(named.name) +
                       "\n");
    }
    terminal.print(label + all + "  " + safe(shown_path(model.path)) + "\n");
  }
  if (document) document->end_list();
  return exit_ok;
}

}  // namespace stele::command
