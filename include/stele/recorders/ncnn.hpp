// Models of ncnn (Tencent), read-only: a text of layers, `.param`, and their weights, `.bin`, which have no names
// (docs/formats/ncnn.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// Models of ncnn. Opening x.param or x.bin opens both files, through the source's bundle. A tensor's name is that of
/// its layer and of its part, "conv1.weight". Weights are f32, f16 or i8; weights with a codebook of 256 numbers are
/// read as f32. The scales of i8 weights are tensors of their own ("conv1.weight_int8_scales").
///
/// The weights of a layer of an unknown type, and of all layers after it, are one unreadable entry with the layer's
/// name, because the layers' attributes determine where weights begin. The layers themselves are not in the Snapshot.
///
/// Errors of open, in addition to those of all formats: not_found (the other file), unsupported (a source without a
/// bundle, a binary .param file, a graph of pnnx).
class STELE_EXPORT NcnnFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "ncnn"; }
  std::string_view extension() const noexcept override { return ".param"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using NcnnRecorder = Recorder<NcnnFormat, Settings>;

}  // namespace stele::inline v0
