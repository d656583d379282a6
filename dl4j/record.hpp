// Saving of checkpoints, for all formats.
#pragma once

#include <memory>
#include <utility>

#include "base/meter.hpp"
#include "stele/checkpoint.hpp"
#include "stele/format.hpp"
#include "stele/sink.hpp"
#include "steps/progress.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// A checkpoint to be written.
struct Content {
  Snapshot parameters;
  Snapshot plain;                    // the parameters before metering
  const Checkpoint* more = nullptr;  // graph, training, optimizer; null if there are none
  Meter* meter = nullptr;            // for the optimizer's arrays, if there are any
};

inline std::uint64_t optimizer_bytes(const Checkpoint& checkpoint) {
  std::uint64_t n = 0;
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) n += arrays.byte_size();
  return n;
}

/// Announces a zip file's minimum size, that of its arrays, to the sink: preallocation saves a file system as much time
/// as writing takes. A file that is written in one call announces its size itself.
inline Status reserve_arrays(Sink& sink, const Content& content) {
  constexpr std::uint64_t at_once = std::uint64_t{1} << 20;
  const std::uint64_t bytes =
      content.parameters.byte_size() + (content.more != nullptr ? optimizer_bytes(*content.more) : 0);
  return bytes > at_once ? sink.reserve(bytes) : Status();
}

/// Prepares a checkpoint, and calls `write` to write it with progress reports.
template <class Write>
Result<Report> record_checkpoint(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                                 Sink* sink, const SaveOptions& options, Write write) {
  Report report;
  const auto failed = [&](Error error, bool committing = false) {
    if (sink != nullptr) sink->remove_parts(committing);
    if (error.file().empty() && sink != nullptr) error = std::move(error).file(sink->name());
    return std::move(error).report(std::make_shared<const Report>(report));
  };
  auto parameters = prepare(format, precision, {nullptr, &checkpoint.parameters},
                            sink != nullptr ? std::string_view(sink->name()) : std::string_view(), options, report);
  if (!parameters) return failed(std::move(parameters).error());
  if (options.dry_run) return report;
  Meter meter(options.progress, parameters->byte_size() + optimizer_bytes(checkpoint));
  const Content content{with_progress(*parameters, meter), *parameters, &checkpoint, &meter};
  auto written = guarded([&] { return write(content); });
  if (!written) return failed(std::move(written).error());
  if (auto r = sink->commit(); !r) return failed(std::move(r).error(), true);
  return report;
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
