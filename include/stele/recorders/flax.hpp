// Files of Flax (flax.serialization.to_bytes), `.msgpack`: one MessagePack map whose values are maps, arrays (extension
// 1: [shape, dtype, bytes]), NumPy scalars (extension 3, the same content) and Python's own values. Lists and tuples
// are maps with the keys "0", "1", … . An array of more than 2^30 bytes is a map of several arrays
// (docs/formats/flax.md).
#pragma once

#include <cstdint>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct FlaxOptions {
  /// Maximum size of an array in bytes; larger arrays are written in parts. The default is Flax's own limit.
  std::uint64_t part_bytes = std::uint64_t{1} << 30;
};

/// Flax's files. Modules, lists and maps are maps in the file, and values are Python's. The annotation `flax.scalar`
/// marks a NumPy scalar. Arrays of dtypes without an equivalent are unreadable entries. Stores no checksums and no
/// metadata.
class STELE_EXPORT FlaxFormat final : public Format {
 public:
  explicit FlaxFormat(FlaxOptions options = {}) : options_(options) {}
  std::string_view name() const noexcept override { return "flax"; }
  std::string_view extension() const noexcept override { return ".msgpack"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const FlaxOptions& options() const noexcept { return options_; }

 private:
  FlaxOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using FlaxRecorder = Recorder<FlaxFormat, Settings>;

}  // namespace stele::inline v0
