// The own format, `.stele`, to files and to memory. Byte layout: stele_reader.hpp and docs/formats/stele.md.
#pragma once

#include "stele/recorder.hpp"

namespace stele {
inline namespace v0 {

/// `.stele`: nesting, values, ties, ids, metadata, annotations; a checksum per tensor and one over the index.
class STELE_EXPORT SteleFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "stele"; }
  std::string_view extension() const noexcept override { return ".stele"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink) const override;
};

/// Files. `recorder.record(module, "model.stele")`.
template <PrecisionSettings Settings = NativePrecision>
using BinaryRecorder = Recorder<SteleFormat, Settings>;

/// Memory. `recorder.record(module)` gives Bytes, which a microcontroller reads in place with stele_reader.hpp.
template <PrecisionSettings Settings = NativePrecision>
using BytesRecorder = MemoryRecorder<SteleFormat, Settings>;

}  // namespace v0
}  // namespace stele
