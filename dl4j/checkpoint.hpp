// Saving of checkpoints: the parts that archives and SameDiff files share.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "encodings/gzip/gzip.hpp"
#include "stele/checkpoint.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Writes a prepared checkpoint, whose bytes are counted as they are read. `parameters`: its parameters as they were
/// before that.
using WriteCheckpoint = std::function<Status(const Checkpoint& prepared, const Snapshot& parameters)>;
/// Prepares a checkpoint, calls `write`, and commits the sink.
Result<Report> record_checkpoint(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                                 Sink& sink, const SaveOptions& options, const WriteCheckpoint& write);

/// Returns the bytes of the optimizer's arrays.
std::uint64_t optimizer_bytes(const Checkpoint& checkpoint);

/// Announces a zip file's minimum size, that of its arrays, to the sink: preallocation saves a file system as much time
/// as writing takes. A file that is written in one call announces its size itself.
Status reserve_arrays(Sink& sink, const Checkpoint& checkpoint);

/// Checks the array of an optimizer's state for the parameter `name`. Errors: not_representable (another shape than the
/// parameter's, a dtype that the files do not have).
Status check_state(std::string_view name, const LeafView& parameter, const LeafView& state);

/// Checks that names are UTF-8 and different, and that metadata is UTF-8 and has none of the keys `own` of the format.
/// Errors: not_representable, duplicate.
Status check_names(const Snapshot& snapshot, std::span<const std::string_view> own);

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Computes the CRC-32 of a leaf.
class CrcSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    crc = gzip::crc32(crc, bytes.data(), bytes.size());
    return {};
  }
  std::uint32_t crc = 0;
};

}  // namespace stele::inline v0::detail
