// ONNX: the tensors of a model file. Protocol buffers (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto):
//
//  1. ModelProto: ir_version 1, producer_name 2, graph 7, opset_import 8, metadata_props 14 (key 1, value 2).
//  2. GraphProto: node 1 (a Constant has a tensor in an attribute), name 2, initializer 5 (the tensors).
//  3. TensorProto: dims 1, data_type 2, name 8, and the elements: raw_data 9 (row-major, little-endian; two 4-bit
//     elements in a byte, the first in the low half), or float_data 4, int32_data 5, int64_data 7, double_data 10,
//     uint64_data 11, or external_data 13 (location, offset, length) with data_location 14 = 1.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

namespace detail::onnx {
struct Structure;
}

struct OnnxOptions {
  /// The path of a model for saves, which copy it and replace the tensors whose names the module has. Empty: saves
  /// write a model without operations.
  std::string model{};
  /// The name of a second file, in the folder of the saved model, for the elements of tensors of 1024 bytes or more:
  /// "net.onnx.data". Empty: all elements are in the model, which has at most 2^31 - 1 bytes.
  std::string external{};
};

/// The tensors of an ONNX model, by name: initializers, and tensors of nodes, subgraphs, functions and training
/// (docs/formats/onnx.md lists the names). Other parts of a model are not read; a save into OnnxOptions::model copies
/// them. Elements in other files (external_data) are read from the model's folder and its subfolders.
///
/// With OnnxOptions::external, the second file is committed before the model, so that a new model appears completely or
/// not at all. An existing file with that name is not replaced, unless FileSinkOptions::allow_nonatomic; it may be a
/// file of OnnxOptions::model. The sink must know its bundle (a file, or a sink of memory_bundle()).
///
/// Strings, sparse tensors and dtypes that stele does not support are opaque tensors with the annotation `unreadable`.
///
/// Errors of open, in addition to those of all formats: malformed (a location outside the folder). Errors of write:
/// dtype_mismatch and shape_mismatch (the model's tensor differs), not_representable (more than 2^31 - 1 bytes without
/// the external elements: the limit of protocol buffers), and with OnnxOptions::external invalid_argument (not a plain
/// file name), exists, unsupported (a sink of one file).
class STELE_EXPORT OnnxFormat final : public Format {
 public:
  /// `structure`: the graph around the tensors, for exports (export_onnx()).
  explicit OnnxFormat(OnnxOptions options = {}, std::shared_ptr<const detail::onnx::Structure> structure = nullptr)
      : options_(std::move(options)), structure_(std::move(structure)) {}
  std::string_view name() const noexcept override { return "onnx"; }
  std::string_view extension() const noexcept override { return ".onnx"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const OnnxOptions& options() const noexcept { return options_; }

 private:
  OnnxOptions options_;
  std::shared_ptr<const detail::onnx::Structure> structure_;
};

template <PrecisionSettings Settings = NativePrecision>
using OnnxRecorder = Recorder<OnnxFormat, Settings>;

}  // namespace stele::inline v0
