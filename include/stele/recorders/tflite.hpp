// Models of TensorFlow Lite (LiteRT), `.tflite`; read-only: a FlatBuffer with operators and tensors, whose constants
// are the parameters (docs/formats/tflite.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// Constants of TensorFlow Lite's models, with the names of the model's tensors. Tensors that share a buffer, a shape
/// and a quantization are tied. Quantized tensors are integers with the annotation `quantization` (stele/quantize.hpp),
/// with a scale for the tensor or for each index of an axis: LoadOptions::dequantize and dequantize() make floats of
/// them. Integers of 4 and 2 bits are read as i8 and u8, with the annotation `tflite.dtype`. Strings, resources,
/// variants and sparse tensors are unreadable entries. The description, and metadata that are text, become metadata.
class STELE_EXPORT TfliteFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "tflite"; }
  std::string_view extension() const noexcept override { return ".tflite"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
class TfliteRecorder : public Recorder<TfliteFormat, Settings> {
 public:
  using Recorder<TfliteFormat, Settings>::Recorder;
  /// Not available: models are only read.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
