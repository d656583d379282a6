// Opens bytes as one of DL4J's files (.fb, .sdnb, .sdz), reads everything in it, and writes it again.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"
#include "stele/recorders/samediff.hpp"

namespace {

using stele_test::require;

using namespace stele;

/// Reads the leaves whole where they are not large; whether all could be.
bool readable(const Snapshot& snapshot) {
  class Nowhere final : public PieceSink {
   public:
    Status piece(std::span<const std::byte>) override { return {}; }
  } sink;
  ReadContext context;
  bool all = true;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    all = all && leaf.byte_size() < (1U << 22U) && leaf.stream(sink, context).has_value();
  }
  return all;
}

void check(const SourcePtr& source) {
  const auto checkpoint = open_samediff(source);
  const auto parameters = SameDiffRecorder<>().open(source);
  if (checkpoint) require(parameters.has_value());
  const bool verified = SameDiffRecorder<>().verify(source).has_value();
  require(checkpoint || !verified);
  if (!checkpoint) return;
  bool whole = readable(checkpoint->parameters);
  for (const auto& [key, arrays] : checkpoint->optimizer.kinds()) whole = readable(arrays) && whole;
  static_cast<void>(checkpoint->graph->order());
  for (const SameDiffContainer container : {SameDiffContainer::fb, SameDiffContainer::sdnb, SameDiffContainer::sdz}) {
    const SameDiffRecorder<> recorder({.container = container, .shard_bytes = 64});
    if (container == SameDiffContainer::sdnb) continue;  // several files
    BufferSink sink;
    // A save refuses content of a file that no graph can have; a file that it writes reads as the same.
    if (!whole || !recorder.save(*checkpoint, sink)) continue;
    const auto again = open_samediff(own_bytes(sink.take()));
    require(again.has_value());
    require(again->parameters.leaf_count() == checkpoint->parameters.leaf_count());
    require(again->graph->operations.size() == checkpoint->graph->operations.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes copy(size);
  std::copy_n(reinterpret_cast<const std::byte*>(data), size, copy.data());
  check(own_bytes(std::move(copy)));
  return 0;
}
