#include <algorithm>

#include "snapshot_internal.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

namespace {
/// Between two questions; a multiple of every element's size.
constexpr std::size_t step = std::size_t{4} << 20;
}  // namespace

Status Meter::add(std::uint64_t bytes) {
  if (idle()) return {};
  const std::lock_guard lock(mutex_);
  // A format may pass over a tensor twice.
  progress_.done = std::min(progress_.done + bytes, progress_.total);
  cancelled_ = cancelled_ || !callback_(progress_);
  return cancelled_ ? Error(Errc::cancelled, "stopped by the progress callback") : Status();
}

Status MeterSink::piece(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), step));
    STELE_TRY(next_.piece(now));
    STELE_TRY(meter_.add(now.size()));
    bytes = bytes.subspan(now.size());
  }
  return {};
}

namespace {

struct Metered {
  Snapshot base;
  Meter& meter;
};

Status read_metered(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  return static_cast<const Metered*>(at)->base.leaf(static_cast<std::size_t>(number)).read(offset, out, context);
}
Status stream_metered(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const Metered& metered = *static_cast<const Metered*>(at);
  MeterSink metering(sink, metered.meter);
  return metered.base.leaf(static_cast<std::size_t>(number)).stream(metering, context);
}
constexpr LeafOps metered_ops{.read = read_metered, .stream = stream_metered};

}  // namespace

Snapshot with_progress(const Snapshot& snapshot, Meter& meter) {
  if (meter.idle()) return snapshot;
  auto data = derived_data(snapshot);
  auto step_data = std::make_shared<const Metered>(Metered{snapshot, meter});
  for (std::size_t i = 0; i < data->leaves.size(); ++i) data->leaves[i].provider = {&metered_ops, step_data.get(), i};
  data->keepers.push_back(std::move(step_data));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
