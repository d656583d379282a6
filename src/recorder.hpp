// The steps of a save, for formats that write data in addition to a Snapshot.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/meter.hpp"
#include "stele/format.hpp"

namespace stele::inline v0::detail {

/// Writes a prepared snapshot. `meter` must count the tensors' bytes (passes/progress.hpp).
using WritePrepared = std::function<Status(const Snapshot& prepared, Meter& meter)>;

/// Saves like save_object() in format.hpp, with `write` instead of Format::write(). `more_bytes`: size of the tensors
/// that `write` adds to the snapshot's tensors, for the progress callback.
STELE_EXPORT Result<Report> save_object(const Format& format, PrecisionSpec precision, const Object& object, Sink& sink,
                                        const SaveOptions& options, std::uint64_t more_bytes,
                                        const WritePrepared& write);

/// Returns the sink of a save to `path`; for a dry run, a sink that discards all bytes.
STELE_EXPORT Result<std::unique_ptr<Sink>> sink_for(const Format& format, std::string_view path,
                                                    const SaveOptions& options);
/// Returns an error if LoadOptions::part is set, for calls that read a whole file.
STELE_EXPORT Status refuse_part(const Input& from, const LoadOptions& options,
                                const char* hint = "open or load the part, without the optimizer state");
/// Calls `save(Sink&)` with the sink for `to`.
template <class Save>
Result<Report> save_to(const Format& format, const Output& to, const SaveOptions& options, Save save) {
  if (to.sink() != nullptr) return save(*to.sink());
  return guarded([&]() -> Result<Report> {
    STELE_TRY_ASSIGN(const std::unique_ptr<Sink> sink, sink_for(format, to.path(), options));
    return save(*sink);
  });
}

}  // namespace stele::inline v0::detail
