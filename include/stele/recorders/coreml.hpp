// Core ML: the weights of a model, read-only (https://github.com/apple/coremltools, mlmodel/format):
//
//  1. NAME.mlpackage: a folder. Manifest.json names the model, by default Data/com.apple.CoreML/model.mlmodel.
//  2. model.mlmodel: protocol buffers. An ML program (502) has operations `const` and `constexpr_…` with values, or the
//     places of values in a file of weights; a neural network (500, 403, 303) has layers with weights.
//  3. weights/weight.bin: 64 bytes {u32 count, u32 version 2}; blobs, each after a record of 64 bytes {u32 0xDEADBEEF,
//     u32 dtype, u64 size, u64 offset}, at multiples of 64.
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// The constants of an ML program, by the names of their outputs, and the weights of a neural network, by layer
/// (docs/formats/coreml.md). Opens a folder `.mlpackage`, a `.mlmodel`, and a `weight.bin` alone, whose tensors have
/// numbers as names and one axis. Other parts of a model are not read.
///
/// Integers that constexpr_affine_dequantize and constexpr_blockwise_shift_scale decode are composite tensors
/// (stele/composite.hpp). The parts of other compressed weights are tensors. Strings are values. Elements of 1, 2, 3
/// and 6 bits are opaque tensors with the annotation `unreadable`.
///
/// Errors of open, in addition to those of all formats: not_found (the file of weights), unsupported (models of other
/// kinds).
class STELE_EXPORT CoremlFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "coreml"; }
  std::string_view extension() const noexcept override { return ".mlpackage"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
class CoremlRecorder : public Recorder<CoremlFormat, Settings> {
  using Base = Recorder<CoremlFormat, Settings>;

 public:
  using Base::Base;
  /// Not available: models are read-only.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
