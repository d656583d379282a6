// TensorFlow's checkpoints (tensor bundles), including the `variables` of a SavedModel; read-only:
//
//  1. PREFIX.index: a sorted table in LevelDB's format, from each tensor's key to its dtype, shape, shard, offset, size
//  and
//     CRC-32C (protocol buffers; https://github.com/tensorflow/tensorflow, core/protobuf/tensor_bundle.proto).
//  2. PREFIX.data-00000-of-00001, …: the elements, row-major, little-endian.
//  3. checkpoint: a text file with the name of the latest PREFIX in its folder.
#pragma once

#include "stele/checkpoint.hpp"
#include "stele/read_only.hpp"

namespace stele::inline v0 {

/// The names of a checkpoint's tensors. The parts of a name, which TensorFlow separates by `/`, become segments of a
/// path.
enum class TensorBundleNames : std::uint8_t {
  objects,    // the attributes that lead to a variable: "model.dense.kernel". In files without objects (TensorFlow 1):
              // variables
  variables,  // the names with which the variables were created: "dense.kernel"
  keys,       // the keys of the index, unchanged, as one segment each; includes every entry
};

struct TensorBundleOptions {
  TensorBundleNames names = TensorBundleNames::objects;
};

/// TensorFlow's checkpoints. Opens PREFIX, PREFIX.index, a text file `checkpoint`, a folder with such a file or with
/// one checkpoint, and the folder of a SavedModel.
///
/// The slots of optimizers, which have the shape of a variable, are not parameters; open_checkpoint() returns them by
/// kind: slots of TensorFlow 2 by their name ("m", "v", "momentum"), slots of Keras 3 by the optimizer's attribute
/// without its underscores ("momentums", "velocities"), slots of TensorFlow 1 by the end of their names ("Adam",
/// "Adam_1", "Momentum"). If there are several optimizers of TensorFlow 2, the optimizer's path precedes the kind. With
/// TensorBundleNames::keys, slots are parameters.
///
/// A partitioned variable is one tensor. String tensors are values. Integers of 2 and 4 bits are read as i8 and u8,
/// with the annotation `tensorflow.dtype`. Elements of dtypes that stele does not have (variants, quantized integers)
/// are opaque bytes with that annotation.
///
/// Errors of open, in addition to those of all formats: unsupported (resource handles, big-endian files), duplicate
/// (two tensors with one name: TensorBundleNames::keys opens any checkpoint).
class STELE_EXPORT TensorBundleFormat final : public ReadOnlyFormat {
 public:
  explicit TensorBundleFormat(TensorBundleOptions options = {}) noexcept : options_(options) {}
  std::string_view name() const noexcept override { return "tensor-bundle"; }
  std::string_view extension() const noexcept override { return ".index"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Opens the parameters and the slots of optimizers. All tensors are lazy.
  Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const;
  const TensorBundleOptions& options() const noexcept { return options_; }

 private:
  TensorBundleOptions options_;
};

namespace detail {
// The implementation of TensorBundleRecorder.
STELE_EXPORT Result<Checkpoint> open_checkpoint(const TensorBundleFormat& format, const Input& from,
                                                const LoadOptions& options);
}  // namespace detail

template <PrecisionSettings Settings = NativePrecision>
class TensorBundleRecorder : public ReadOnlyRecorder<TensorBundleFormat, Settings> {
  using Base = ReadOnlyRecorder<TensorBundleFormat, Settings>;

 public:
  using Base::Base;
  /// Opens the parameters and the slots of optimizers. All tensors are lazy.
  Result<Checkpoint> open_checkpoint(const Input& from, const LoadOptions& options = default_load_options()) const {
    return detail::open_checkpoint(Base::format(), from, options);
  }
};

}  // namespace stele::inline v0
