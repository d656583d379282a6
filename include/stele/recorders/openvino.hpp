// OpenVINO IR: the constants of a model. Two files with one stem (https://docs.openvino.ai, "OpenVINO IR format"):
//
//  1. NAME.xml: the graph. An element `data` in a `layer` of the type Const, with element_type, shape, offset and size,
//  is a constant.
//  2. NAME.bin: the elements of the constants, row-major, little-endian. It has no header.
#pragma once

#include <string>
#include <utility>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct OpenvinoOptions {
  /// The path of a model (`.xml`) for saves, which copy it and replace the constants whose names the module has. Empty:
  /// the format is read-only, because a model needs operations.
  std::string model{};
};

/// The constants of an OpenVINO IR, by the names of their layers; names in the body of a Loop, If or TensorIterator
/// begin with the names of the layer and the body (docs/formats/openvino.md). Opens either of the two files; the other
/// file must be in the same folder. Other parts of the model are not read; a save into OpenvinoOptions::model copies
/// them. Integers that the model converts, and multiplies by scales, are composite tensors (stele/composite.hpp).
///
/// A save writes both files, the `.bin` first. It replaces existing files only if the `.xml` stays as it is, or with
/// FileSinkOptions::allow_nonatomic. The sink must know its bundle (a file, or a sink of memory_bundle()).
///
/// Strings and element types that stele does not support (u1, u2, u3, u6, nf4) are opaque tensors with the annotation
/// `unreadable`.
///
/// Errors of open, in addition to those of all formats: not_found (the other file), unsupported (a version before 10; a
/// source without a bundle). Errors of write: dtype_mismatch and shape_mismatch (the model's constant differs),
/// unsupported (a sink of one file; a constant that stele cannot read), exists.
class STELE_EXPORT OpenvinoFormat final : public Format {
 public:
  explicit OpenvinoFormat(OpenvinoOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "openvino"; }
  std::string_view extension() const noexcept override { return ".xml"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return !options_.model.empty(); }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const OpenvinoOptions& options() const noexcept { return options_; }

 private:
  OpenvinoOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using OpenvinoRecorder = Recorder<OpenvinoFormat, Settings>;

}  // namespace stele::inline v0
