#include "dl4j/checkpoint.hpp"

#include <algorithm>
#include <set>

#include "dl4j/arrays.hpp"
#include "json/json.hpp"
#include "passes/progress.hpp"
#include "recorder.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/properties.hpp"

namespace stele::inline v0 {

CheckpointFormat::~CheckpointFormat() = default;

Status CheckpointFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return write_checkpoint(Checkpoint{snapshot}, sink, options);
}

namespace detail {

Result<Report> record_checkpoint(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                                 Sink& sink, const SaveOptions& options, const WriteCheckpoint& write) {
  return record(format, precision, {nullptr, &checkpoint.parameters}, sink, options, optimizer_bytes(checkpoint),
                [&](const Snapshot& prepared, Meter& meter) {
                  Checkpoint metered{with_progress(prepared, meter), checkpoint.graph, checkpoint.training, {}};
                  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
                    metered.optimizer.set_snapshot(key, with_progress(arrays, meter));
                  }
                  return write(metered, prepared);
                });
}

Result<Report> record_checkpoint(const CheckpointFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                                 Sink& sink, const SaveOptions& options) {
  if (checkpoint.graph && !format.stores_graphs()) {
    if (!options.allow_loss) {
      return Error(Errc::not_representable, "the format cannot store a graph")
          .file(sink.name())
          .found(format.name())
          .hint("save to an archive, or set SaveOptions::allow_loss");
    }
    const Checkpoint rest{checkpoint.parameters, std::nullopt, checkpoint.training, checkpoint.optimizer};
    STELE_TRY_ASSIGN(Report report, record_checkpoint(format, precision, rest, sink, options));
    report.add(Report::What::lost, "", "the graph");
    return report;
  }
  return record_checkpoint(
      format, precision, checkpoint, sink, options,
      [&](const Checkpoint& prepared, const Snapshot&) { return format.write_checkpoint(prepared, sink, options); });
}

Result<Report> record_checkpoint(const CheckpointFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                                 const std::string& path, const SaveOptions& options) {
  return guarded([&]() -> Result<Report> {
    STELE_TRY_ASSIGN(const auto sink, sink_for(format, path, options));
    return record_checkpoint(format, precision, checkpoint, *sink, options);
  });
}

Result<Checkpoint> open_checkpoint(const CheckpointFormat& format, const Input& from, const LoadOptions& options) {
  return guarded([&]() -> Result<Checkpoint> {
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

Status check_state(std::string_view name, const LeafView& parameter, const LeafView& state) {
  const auto refuse = [&](const char* why) { return Error(Errc::not_representable, why).path(std::string(name)); };
  if (!std::equal(parameter.shape().begin(), parameter.shape().end(), state.shape().begin(), state.shape().end())) {
    return refuse("the shape of the optimizer state differs from the parameter's")
        .expected(to_string(parameter.shape()))
        .found(to_string(state.shape()));
  }
  if (!samediff::holds(state.dtype())) {
    return refuse("the format does not have the dtype of the optimizer state")
        .found(std::string(stele::name(state.dtype())));
  }
  return {};
}

Status check_names(const Snapshot& snapshot, std::span<const std::string_view> own) {
  const LeafPaths paths(*snapshot.data());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (!json::valid_utf8(paths[i])) {
      return Error(Errc::not_representable, "the tensor name is not valid UTF-8").path(std::string(paths[i]));
    }
    if (!names.insert(paths[i]).second) {
      return Error(Errc::duplicate, "two tensors have the same name").path(std::string(paths[i]));
    }
  }
  for (const auto& [key, text] : snapshot.metadata()) {
    if (key == flat_key || std::find(own.begin(), own.end(), key) != own.end()) {
      return Error(Errc::not_representable, "the format reserves the metadata key").found(key);
    }
    if (!json::valid_utf8(key) || !json::valid_utf8(text)) {
      return Error(Errc::not_representable, "the metadata is not valid UTF-8").found(key);
    }
  }
  return {};
}

}  // namespace detail
}  // namespace stele::inline v0
