// Opens bytes as a safetensors file with the parts of quantized weights; decodes all, whole and in part, splits and
// joins.
#include <stele/composite.hpp>
#include <stele/recorders/safetensors.hpp>

#include "fuzz/records.hpp"

namespace {

using namespace stele;
using namespace stele_test;

struct Count final : PieceSink {
  std::uint64_t bytes = 0;
  Status piece(std::span<const std::byte> piece) override {
    bytes += piece.size();
    return {};
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const OpenContext context(default_load_options(), {});
  const auto stored = SafetensorsFormat().open(borrow_bytes(std::as_bytes(std::span(data, size))), context);
  if (!stored) return 0;
  const auto opened = join_composites(*stored);
  require(opened.has_value());
  std::size_t composites = 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto info = composite(leaf);
    if (!info) continue;
    ++composites;
    require(leaf.byte_size() <= 32 * info->bytes);
    Count all;
    ReadContext reading;
    const bool whole = leaf.stream(all, reading).has_value();
    require(!whole || all.bytes == leaf.byte_size());
    std::array<std::byte, 12> some;
    if (leaf.size() >= 3) require(leaf.read(4 * (leaf.size() / 2 - 1), some).has_value() || !whole);
  }
  const auto parts = split_composites(*opened);
  require(parts.has_value() && parts->leaf_count() == stored->leaf_count());
  for (std::size_t i = 0; i < parts->leaf_count(); ++i) require(!composite(parts->leaf(i)));
  const auto again = join_composites(*parts);
  require(again.has_value() && again->leaf_count() == opened->leaf_count());
  require(composites == 0 || saved(SafetensorsRecorder<>(), *opened).has_value());
  return 0;
}
