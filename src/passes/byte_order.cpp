// Files are little-endian. On a big-endian machine, the leaves of a Snapshot change their byte order while they are
// read.
#include <algorithm>
#include <cstring>

#include "leaves/needs.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail {
namespace {

/// Copies whole units with their bytes reversed. `to` may be the same memory as `from`.
void swap_bytes(std::span<const std::byte> from, std::byte* to, std::size_t unit) {
  if (from.data() != to) std::memcpy(to, from.data(), from.size());
  for (std::size_t i = 0; i < from.size(); i += unit) std::reverse(to + i, to + i + unit);
}

/// Receives pieces whose sizes are multiples of 64 bytes, except the last, so that no unit is split.
class SwappingSink final : public PieceSink {
 public:
  SwappingSink(std::size_t unit, PieceSink& next, ReadContext& context) : unit_(unit), next_(next), staging_(context) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      std::byte* to = next_.place(done_, now.size());
      if (to == nullptr) to = staging_.data();
      swap_bytes(now, to, unit_);
      STELE_TRY(next_.piece({to, now.size()}));
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  std::size_t unit_;
  PieceSink& next_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;
};

/// Returns the base leaf: `at` is the base snapshot, `number` the number of the leaf in it.
LeafView base_leaf(const void* at, std::uint64_t number) {
  return {*static_cast<const SnapshotData*>(at), static_cast<std::uint32_t>(number)};
}

Status swapped_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  const LeafView base = base_leaf(at, number);
  STELE_TRY(base.read(offset, out, context));
  swap_bytes(out, out.data(), swap_unit(base.dtype()));
  return {};
}

Status swapped_stream(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const LeafView base = base_leaf(at, number);
  SwappingSink swapping(swap_unit(base.dtype()), sink, context);
  return base.stream(swapping, context);
}

void swapped_needs(const void* at, std::uint64_t number, Needs& needs) { needs.add(base_leaf(at, number)); }

constexpr LeafOps swapped_ops{.read = swapped_read, .stream = swapped_stream, .needs = swapped_needs};

}  // namespace

Snapshot with_bytes_swapped(const Snapshot& snapshot, const std::vector<bool>* chosen) {
  auto data = derived_data(snapshot);
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    if (chosen != nullptr && !(*chosen)[i]) continue;
    if (swap_unit(data->leaves[i].dtype) > 1) data->leaves[i].provider = {&swapped_ops, snapshot.data().get(), i};
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
