// The steps of a save, for formats that write more than a Snapshot.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/meter.hpp"
#include "stele/format.hpp"

namespace stele::inline v0::detail {

/// Writes a prepared snapshot. `meter` must count the tensors' bytes (steps/progress.hpp).
using WritePrepared = std::function<Status(const Snapshot& prepared, Meter& meter)>;

/// Saves like record() in format.hpp, with `write` instead of Format::write(). `more_bytes`: bytes of tensors that
/// `write` adds to the snapshot's, for the progress callback.
STELE_EXPORT Result<Report> record(const Format& format, PrecisionSpec precision, const Object& object, Sink& sink,
                                   const SaveOptions& options, std::uint64_t more_bytes, const WritePrepared& write);

/// Returns the sink of a save to `path`; for a dry run, one that drops all bytes.
STELE_EXPORT Result<std::unique_ptr<Sink>> sink_for(const Format& format, const std::string& path,
                                                    const SaveOptions& options);

}  // namespace stele::inline v0::detail
