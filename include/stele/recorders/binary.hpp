// stele's own format, `.stele`, in files and in memory. Byte layout: stele_reader.hpp and docs/formats/stele.md.
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

enum class Compression : std::uint8_t {
  none,
  zstd,  // byte shuffle and zstd, in independent frames of 1 MiB; blocks that do not shrink are stored unchanged
};

/// `.stele`: nesting, values, ties, ids, metadata, annotations; a checksum per tensor and one over the index.
class STELE_EXPORT SteleFormat : public Format {
 public:
  SteleFormat() = default;
  explicit SteleFormat(Compression compression) noexcept : compression_(compression) {}
  std::string_view name() const noexcept override { return "stele"; }
  std::string_view extension() const noexcept override { return ".stele"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  Compression compression_ = Compression::none;
};

/// Compressed `.stele` files. Each class reads the files of both.
class CompressedSteleFormat final : public SteleFormat {
 public:
  CompressedSteleFormat() noexcept : SteleFormat(Compression::zstd) {}
};

/// Saves and loads files: `recorder.save(module, "model.stele")`.
template <PrecisionSettings Settings = NativePrecision>
using BinaryRecorder = Recorder<SteleFormat, Settings>;

/// Saves to memory. `recorder.save(module)` returns Bytes, which a microcontroller reads in place with
/// stele_reader.hpp.
template <PrecisionSettings Settings = NativePrecision>
using BytesRecorder = MemoryRecorder<SteleFormat, Settings>;

/// Writes smaller files: trained f32 shrinks by a sixth, bf16 by a third.
template <PrecisionSettings Settings = NativePrecision>
using CompressedRecorder = Recorder<CompressedSteleFormat, Settings>;

}  // namespace stele::inline v0
