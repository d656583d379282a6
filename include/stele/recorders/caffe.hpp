// Files of Caffe, `.caffemodel`; read-only: one message NetParameter of protobuf, whose layers have a name, a type and
// blobs (docs/formats/caffe.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// Caffe's files. Blobs of Convolution, Deconvolution, InnerProduct, Embed and Scale layers are called LAYER.weight and
/// LAYER.bias; those of BatchNorm layers LAYER.mean, LAYER.variance and LAYER.factor; all others LAYER.0, LAYER.1, … .
/// Reads layers of all three versions of the message. Does not read the network's structure and gradients.
class STELE_EXPORT CaffeFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "caffe"; }
  std::string_view extension() const noexcept override { return ".caffemodel"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
class CaffeRecorder : public Recorder<CaffeFormat, Settings> {
 public:
  using Recorder<CaffeFormat, Settings>::Recorder;
  /// Not available: files of Caffe are read-only.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
