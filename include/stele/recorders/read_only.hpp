// Formats that are only read. docs/formats/ has a page for each, and docs/guide/install.md the component of each.
#pragma once

#include <string>
#include <utility>

#include "stele/read_only.hpp"

namespace stele::inline v0 {

/// Caffe's files (docs/formats/caffe.md). Blobs of Convolution, Deconvolution, InnerProduct, Embed and Scale layers are
/// called LAYER.weight and LAYER.bias; those of BatchNorm layers LAYER.mean, LAYER.variance and LAYER.factor; all
/// others LAYER.0, LAYER.1, … . Reads layers of all three versions of the message. Does not read the network's
/// structure and gradients.
class STELE_EXPORT CaffeFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "caffe"; }
  std::string_view extension() const noexcept override { return ".caffemodel"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using CaffeRecorder = ReadOnlyRecorder<CaffeFormat, Settings>;

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
class STELE_EXPORT CoremlFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "coreml"; }
  std::string_view extension() const noexcept override { return ".mlpackage"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using CoremlRecorder = ReadOnlyRecorder<CoremlFormat, Settings>;

struct DarknetOptions {
  /// The text of the network's `.cfg` file. If it is empty, the reader opens the file next to the weights:
  /// `yolo.cfg` for `yolo.weights`, `yolo_final.weights`, `yolo_best.weights`, `yolo_last.weights`,
  /// `yolo_1000.weights`.
  std::string cfg{};
};

/// Darknet's files (docs/formats/darknet.md). Names are LAYER.SECTION.PART, with the numbers that Darknet prints:
/// 0.convolutional.biases, 0.convolutional.scales, … . Without a network, all numbers are one tensor with the name
/// `weights`, and notes() of the snapshot tell why. Version and number of images are metadata (darknet.version,
/// darknet.seen).
///
/// Revision 5 of version 0.2 is read with the layers of AlexeyAB's program, other files with those of the original. A
/// file may end between two layers. The weights from a section on that is not supported are one unreadable entry.
///
/// Errors of open, in addition to those of all formats: malformed (the network describes more or fewer numbers).
class STELE_EXPORT DarknetFormat final : public ReadOnlyFormat {
 public:
  explicit DarknetFormat(DarknetOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "darknet"; }
  std::string_view extension() const noexcept override { return ".weights"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  const DarknetOptions& options() const noexcept { return options_; }

 private:
  DarknetOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using DarknetRecorder = ReadOnlyRecorder<DarknetFormat, Settings>;

/// Models of llama2.c (docs/formats/llama2c.md), with the names of its `model.py`. Reads versions 0 to 2 of
/// `export.py`; quantized weights (version 2) load as f32, or as their parts. The numbers of the header are properties,
/// `llama2c.dim` and so on. A shared classifier is the alias `output.weight` of `tok_embeddings.weight`.
class STELE_EXPORT Llama2cFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "llama2c"; }
  std::string_view extension() const noexcept override { return ".bin"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using Llama2cRecorder = ReadOnlyRecorder<Llama2cFormat, Settings>;

/// Models of ncnn (docs/formats/ncnn.md). Opening x.param or x.bin opens both files, through the source's bundle. A
/// tensor's name is that of its layer and of its part, "conv1.weight". Weights are f32, f16 or i8; weights with a
/// codebook of 256 numbers are read as f32. The scales of i8 weights are tensors of their own
/// ("conv1.weight_int8_scales").
///
/// The weights of a layer of an unknown type, and of all layers after it, are one unreadable entry with the layer's
/// name, because the layers' attributes determine where weights begin. The layers themselves are not in the Snapshot.
///
/// Errors of open, in addition to those of all formats: not_found (the other file), unsupported (a source without a
/// bundle, a binary .param file, a graph of pnnx).
class STELE_EXPORT NcnnFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "ncnn"; }
  std::string_view extension() const noexcept override { return ".param"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using NcnnRecorder = ReadOnlyRecorder<NcnnFormat, Settings>;

/// Orbax's folders (docs/formats/orbax.md): an item, a step, or a folder of steps, of which the newest complete one is
/// opened. A step with one tree opens as this tree; one with several, as a member for each. Dicts are maps, tuples and
/// lists are lists, numbers and strings of Python are values. Arrays that cannot be read are unreadable entries. Also
/// opens an OCDBT database of other zarr arrays.
class STELE_EXPORT OrbaxFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "orbax"; }
  /// Returns "": the names of checkpoints have no extension.
  std::string_view extension() const noexcept override { return ""; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool is_folder() const noexcept override { return true; }
  /// Also opens `manifest.ocdbt`, `_METADATA` and `_CHECKPOINT_METADATA` in a folder.
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Also returns an error (missing) if the checkpoint lacks the data of an entry.
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using OrbaxRecorder = ReadOnlyRecorder<OrbaxFormat, Settings>;

/// Pickles (docs/formats/pickle.md) whose objects are NumPy's arrays and scalars, dicts, lists, tuples, sets, strings,
/// bytes and numbers. Names are the keys and indices, joined by dots. Arrays are lazy, in any byte order and axis
/// order; arrays of Python objects, strings, dates or structures are unreadable entries. Everything else is a value.
///
/// In Paddle's files, a pair of a name and an array is a tensor, and arrays of unsigned 16-bit integers are bf16, as
/// paddle.load() reads them. The table `StructuredToParameterName@@` becomes the annotation `paddle.name` of its
/// tensors. Slices of large arrays (`UnpackBigParamInfor@@`) become one tensor.
///
/// Errors of open, in addition to those of all formats: unsupported (an object of any other class or function, with its
/// name).
class STELE_EXPORT PickleFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "pickle"; }
  std::string_view extension() const noexcept override { return ".pdparams"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using PickleRecorder = ReadOnlyRecorder<PickleFormat, Settings>;

/// Constants of TensorFlow Lite's models (docs/formats/tflite.md), with the names of the model's tensors. Tensors that
/// share a buffer, a shape and a quantization are tied. Quantized tensors are integers with the annotation
/// `quantization` (stele/quantize.hpp), with a scale for the tensor or for each index of an axis:
/// LoadOptions::dequantize and dequantize() make floats of them. Integers of 4 and 2 bits are read as i8 and u8, with
/// the annotation `tflite.dtype`. Strings, resources, variants and sparse tensors are unreadable entries. The
/// description, and metadata that are text, become metadata.
class STELE_EXPORT TfliteFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "tflite"; }
  std::string_view extension() const noexcept override { return ".tflite"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using TfliteRecorder = ReadOnlyRecorder<TfliteFormat, Settings>;

/// Models of whisper.cpp, files of ggml before GGUF (docs/formats/whisper.md). Tensors of blocks keep their bytes, as
/// in GGUF. The mel filters are the tensor `mel_filters`. The model's numbers are properties ("whisper.n_vocab"), and
/// so is the vocabulary, `tokenizer.ggml.tokens`: strings in GPT-2's alphabet, in which each character is a byte, as in
/// GGUF.
///
/// A tensor of an unknown type, or of blocks of an earlier version of ggml, and all tensors after it are one unreadable
/// entry, because the type determines the size.
///
/// Errors of open, in addition to those of all formats: unsupported (other models of ggml before GGUF: `ggjt`, `ggmf`,
/// `ggla`, Silero VAD, Parakeet, GPT-2).
class STELE_EXPORT WhisperFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "whisper"; }
  std::string_view extension() const noexcept override { return ".bin"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using WhisperRecorder = ReadOnlyRecorder<WhisperFormat, Settings>;

}  // namespace stele::inline v0
