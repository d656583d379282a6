// Files of Keras (docs/formats/keras.md), which are HDF5 files: `.weights.h5` of Keras 3, `.h5` of the whole model, and
// `.keras`, a zip file of {metadata.json, config.json, model.weights.h5}. Hdf5Format also reads HDF5 files of other
// programs: groups are modules, and datasets are tensors.
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// HDF5 files. The path of a tensor is the path of its dataset: `layers.dense.vars.0` for /layers/dense/vars/0.
/// Attributes are properties (strings also metadata), by name, or for an object other than the root by its path and
/// name: `layers/dense/vars@name`. Data that HDF5 cannot express (values, ties) are the attribute `stele` of the root.
///
/// Also opens the index of weights in several files (`.weights.json` of Keras 3), with the files next to it.
///
/// Reads compact, contiguous and chunked datasets with the filters deflate, shuffle and fletcher32. Links by path or to
/// other files are never followed; they and datasets of other kinds are unreadable entries.
class STELE_EXPORT Hdf5Format final : public Format {
 public:
  std::string_view name() const noexcept override { return "hdf5"; }
  std::string_view extension() const noexcept override { return ".h5"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<bool> recognises_file(const Source& source) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

/// Models of Keras 3, `.keras`. The contents of config.json and metadata.json are metadata with these keys, and are
/// never executed. A save writes them from the metadata: a model saved with the metadata of an opened file can be
/// loaded by keras.saving.load_model, and without config.json by Model.load_weights.
class STELE_EXPORT KerasFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "keras"; }
  std::string_view extension() const noexcept override { return ".keras"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using Hdf5Recorder = Recorder<Hdf5Format, Settings>;
template <PrecisionSettings Settings = NativePrecision>
using KerasRecorder = Recorder<KerasFormat, Settings>;

}  // namespace stele::inline v0
