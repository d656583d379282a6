// Opens bytes as an archive, mapped and not: each tag as a checkpoint, a part of its arrays; what was opened is written
// into a new archive, which must say the same.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "fuzz/require.hpp"
#include "fuzz/unmapped.hpp"
#include "stele/recorders/archive.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

/// The largest array that is read: deflated ones stand for a thousand times their bytes.
constexpr std::uint64_t most = 1U << 16U;
constexpr std::size_t most_leaves = 64;

bool small(const Snapshot& snapshot) { return snapshot.byte_size() <= 4 * most; }

/// Adds the content of the leaves to `all`, by path. Returns true if each could be read.
bool read_all(const Snapshot& snapshot, std::map<std::string, std::string>& all) {
  bool whole = true;
  for (std::size_t i = 0; i < std::min(snapshot.leaf_count(), most_leaves); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (leaf.byte_size() > most) continue;
    const auto bytes = content(leaf);
    require(!bytes || bytes->size() == leaf.byte_size());
    whole = whole && bytes.has_value();
    if (bytes) all[leaf.path()] = std::string(name(leaf.dtype())) + to_string(leaf.shape()) + *bytes;
  }
  return whole;
}

void rewrite(const Checkpoint& checkpoint, const std::string& tag) {
  const ArchiveRecorder<> recorder{ArchiveFormat({.tag = tag, .deduplicate = true, .deflate = true})};
  BufferSink sink;
  // Values nested too deep for JSON, metadata under our own key, graphs of unknown types: not all is written.
  if (!recorder.save(checkpoint, sink)) return;
  const Bytes bytes = sink.take();
  const auto again = open_archive(bytes, tag);
  require(again.has_value());
  std::map<std::string, std::string> before, after;
  require(read_all(checkpoint.parameters, before));
  require(read_all(again->parameters, after) && before == after);
  require(again->optimizer.kinds().size() == checkpoint.optimizer.kinds().size());
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
    before.clear(), after.clear();
    require(again->optimizer.find(key) != nullptr);
    require(read_all(arrays, before) && read_all(*again->optimizer.find(key), after) && before == after);
  }
  require(again->training == checkpoint.training);
  require(again->graph.has_value() == checkpoint.graph.has_value());
}

void check(const SourcePtr& source) {
  const auto tags = archive_tags(source);
  if (!tags) {
    require(!open_archive(source).has_value());
    return;
  }
  require(!tags->empty());
  for (std::size_t i = 0; i < std::min<std::size_t>(tags->size(), 4); ++i) {
    const auto checkpoint = open_archive(source, (*tags)[i]);
    if (!checkpoint) continue;
    std::map<std::string, std::string> all;
    bool whole = read_all(checkpoint->parameters, all);
    const ArchiveRecorder<> recorder{ArchiveFormat({.tag = (*tags)[i]})};
    bool fits = small(checkpoint->parameters);
    if (fits) require(whole || !recorder.verify(source));
    for (const auto& [key, arrays] : checkpoint->optimizer.kinds()) {
      whole = read_all(arrays, all) && whole;
      fits = small(arrays) && fits;
    }
    if (whole && fits) rewrite(*checkpoint, (*tags)[i]);
    if (checkpoint->graph) static_cast<void>(checkpoint->graph->order());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const SourcePtr mapped = borrow_bytes(std::as_bytes(std::span(data, size)));
  check(mapped);
  check(std::make_shared<Unmapped>(mapped));
  return 0;
}
