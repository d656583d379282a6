#include "passes/progress.hpp"

#include <memory>
#include <utility>

#include "base/meter.hpp"
#include "leaves/needs.hpp"
#include "snapshot/data.hpp"
#include "snapshot/meter_sink.hpp"

namespace stele::inline v0::detail {

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
void metered_needs(const void* at, std::uint64_t number, Needs& needs) {
  needs.add(static_cast<const Metered*>(at)->base.leaf(static_cast<std::size_t>(number)));
}
constexpr LeafOps metered_ops{.read = read_metered, .stream = stream_metered, .needs = metered_needs};

}  // namespace

Snapshot with_progress(const Snapshot& snapshot, Meter& meter) {
  if (meter.idle()) return snapshot;
  auto data = derived_data(snapshot);
  auto step_data = std::make_shared<const Metered>(Metered{snapshot, meter});
  for (std::size_t i = 0; i < data->leaves.size(); ++i) data->leaves[i].provider = {&metered_ops, step_data.get(), i};
  data->keepers.push_back(std::move(step_data));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
