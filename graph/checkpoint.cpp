#include "graph/checkpoint.hpp"

#include "passes/progress.hpp"
#include "recorder.hpp"
#include "snapshot/device_leaves.hpp"
#include "snapshot/properties.hpp"

namespace stele::inline v0 {

CheckpointFormat::~CheckpointFormat() = default;

Status CheckpointFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return write_checkpoint(Checkpoint{snapshot}, sink, options);
}

namespace detail {

Result<Report> save_checkpoint(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint, Sink& sink,
                               const SaveOptions& options, const WriteCheckpoint& write) {
  STELE_TRY_ASSIGN(
      Report report,
      save_object(format, precision, {nullptr, &checkpoint.parameters}, sink, options, optimizer_bytes(checkpoint),
                  [&](const Snapshot& prepared, Meter& meter) -> Status {
                    Checkpoint metered{with_progress(prepared, meter), checkpoint.graph, checkpoint.training, {}};
                    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
                      STELE_TRY_ASSIGN(const Snapshot readable, read_through(arrays, options.transfer));
                      metered.optimizer.set_snapshot(key, with_progress(readable, meter));
                    }
                    return write(metered, prepared);
                  }));
  const Report& lost = checkpoint.left_out;
  for (std::size_t i = 0; i < lost.size(); ++i) report.add(lost[i].what, lost[i].path, lost[i].detail);
  return report;
}

Result<Report> save_checkpoint(const CheckpointFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                               const Output& to, const SaveOptions& options) {
  return save_to(format, to, options, [&](Sink& sink) -> Result<Report> {
    const bool loses_graph = checkpoint.graph && !format.stores_graphs();
    if (loses_graph && !options.allow_loss) {
      return Error(Errc::not_representable, "the format cannot store a graph")
          .file(sink.name())
          .found(format.name())
          .hint("save to an archive, or set SaveOptions::allow_loss");
    }
    Checkpoint rest;
    if (loses_graph) {
      rest = {checkpoint.parameters, std::nullopt, checkpoint.training, checkpoint.optimizer, checkpoint.left_out};
    }
    const Checkpoint& stored = loses_graph ? rest : checkpoint;
    STELE_TRY_ASSIGN(Report report, save_checkpoint(format, precision, stored, sink, options,
                                                    [&](const Checkpoint& prepared, const Snapshot&) {
                                                      return format.write_checkpoint(prepared, sink, options);
                                                    }));
    if (loses_graph) report.add(Report::What::lost, "", "the graph");
    return report;
  });
}

Result<Checkpoint> open_checkpoint(const CheckpointFormat& format, const Input& from, const LoadOptions& options) {
  return guarded([&]() -> Result<Checkpoint> {
    STELE_TRY(refuse_part(from, options));
    STELE_TRY_ASSIGN(SourcePtr source, from.open(format.extension(), options));
    if (!format.opens(source->is_folder())) STELE_TRY(check_kind(*source, !source->is_folder()));
    const std::uint64_t bytes = file_bytes(*source);
    STELE_TRY_ASSIGN(Checkpoint checkpoint, format.open_checkpoint(std::move(source), OpenContext(options, {})));
    STELE_TRY_ASSIGN(checkpoint.parameters, properties_from_metadata(checkpoint.parameters, options.limits, bytes));
    return checkpoint;
  });
}

std::uint64_t optimizer_bytes(const Checkpoint& checkpoint) {
  std::uint64_t n = 0;
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) n += arrays.byte_size();
  return n;
}

Status reserve_arrays(Sink& sink, const Checkpoint& checkpoint) {
  constexpr std::uint64_t at_once = std::uint64_t{1} << 20;
  const std::uint64_t bytes = checkpoint.parameters.byte_size() + optimizer_bytes(checkpoint);
  return bytes > at_once ? sink.reserve(bytes) : Status();
}

}  // namespace detail
}  // namespace stele::inline v0
