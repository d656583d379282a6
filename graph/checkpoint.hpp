// Saves checkpoints for recorders whose formats store them.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "stele/checkpoint.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Writes a prepared checkpoint, which counts its bytes as they are read. `parameters` are the parameters before they
/// were wrapped for counting.
using WriteCheckpoint = std::function<Status(const Checkpoint& prepared, const Snapshot& parameters)>;
/// Prepares a checkpoint, calls `write`, and commits the sink.
Result<Report> save_checkpoint(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint, Sink& sink,
                               const SaveOptions& options, const WriteCheckpoint& write);

/// Returns the size of the optimizer's arrays in bytes.
std::uint64_t optimizer_bytes(const Checkpoint& checkpoint);

/// Announces a zip file's minimum size, which is the size of its arrays, to the sink: preallocation saves about as much
/// time as writing takes. A file that is written in one call announces its size itself.
Status reserve_arrays(Sink& sink, const Checkpoint& checkpoint);

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace stele::inline v0::detail
