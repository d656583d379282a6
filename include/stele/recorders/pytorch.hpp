// PyTorch's files, read without Python: .pt, .pth, .bin, .ckpt. Byte layouts: docs/formats/pytorch.md.
//
// Read: the zip files of torch.save (since 1.6), its streams (before 1.6) and tar files (before 0.1.10), TorchScript
// and libtorch archives, exported programs (.pt2), folders of torch.distributed.checkpoint (DCP). Written: the zip
// file. Pickles are data here: nothing is imported, nothing is called, whatever a file contains.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/checkpoint.hpp"
#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct PytorchOptions {
  /// The path of the part of a file that holds the parameters, "" for all of it: "state_dict", "model_state_dict". For
  /// open_checkpoint(), which finds the parts of the usual checkpoints by itself, only if there are several. On save of
  /// a checkpoint: its key ("model_state_dict" if empty).
  std::string part{};
  /// The path of the optimizer's state: a dict with `state` and `param_groups`. As above; on save
  /// "optimizer_state_dict".
  std::string optimizer{};
  /// The names of the parameters in the order of Python's `module.parameters()`, by whose numbers PyTorch stores
  /// optimizer state. If empty: `param_names` of the file's groups, or the tensors in their order without `buffers`.
  std::vector<std::string> parameters{};
  /// Patterns (stele/pattern.hpp) of tensors that are not parameters in Python, but buffers.
  std::vector<std::string> buffers{"*running_mean", "*running_var", "*num_batches_tracked"};
  /// Compares no CRC-32: for files that were written with PyTorch's checksums turned off.
  bool ignore_checksums = false;
};

/// PyTorch's files. Names are the keys of nested dicts, lists and attributes, joined by dots, as they are in a
/// state_dict: a key is not escaped. Numbers, strings and lists of them are values. Tensors that share their elements
/// are tied. Every other object is a value: a map with `__class__` (its name in Python), `args` and `state`; if it
/// contains tensors, they are below its path, beside a string `__class__`.
///
/// Written like torch.save(state_dict, path): torch.load(path, weights_only=True, mmap=True) reads it. Values, ties
/// that names cannot express, and metadata are in an attribute of the dict (docs/formats/pytorch.md).
///
/// Errors of open, besides those of all formats: unsupported (a layout, dtype or quantization that PyTorch does not
/// document), duplicate (two tensors with one name).
class STELE_EXPORT PytorchFormat final : public CheckpointFormat {
 public:
  PytorchFormat() = default;
  explicit PytorchFormat(PytorchOptions options) : options_(std::move(options)) {}
  const PytorchOptions& options() const noexcept { return options_; }

  std::string_view name() const noexcept override { return "pytorch"; }
  std::string_view extension() const noexcept override { return ".pt"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  /// Opens the model and the optimizer's state of a checkpoint: a dict of dicts, as programs save it
  /// ({"model_state_dict": …, "optimizer_state_dict": …, "epoch": …}), Lightning's too, or a plain state_dict. Kinds of
  /// state have PyTorch's names ("exp_avg", "exp_avg_sq", "momentum_buffer"); `step` is one, too: a number for each
  /// parameter. `training.updater` has the settings of the first group: Adam, Sgd, RmsProp, AdaGrad, with DL4J's names.
  /// Errors: not_found (no such part), invalid_argument (parameters that do not fit the file), malformed.
  /// Checkpoint::left_out lists everything else that the file contains.
  Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const override;
  bool stores_graphs() const noexcept override { return false; }
  /// Writes {"model_state_dict": …, "optimizer_state_dict": …, "epoch": …}; without optimizer state and training
  /// configuration, a state_dict. The settings of the groups are those of the file that the parameters were opened
  /// from, or those of `training.updater`. Errors: missing (optimizer state without settings).
  Status write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const override;

 private:
  PytorchOptions options_;
};

/// Returns the settings of an opened checkpoint's optimizer that `training` does not have, such as
/// "param_groups.1.lr": only PyTorch's files store them.
STELE_EXPORT Result<std::vector<std::string>> settings_of_pytorch_alone(const Checkpoint& checkpoint);

template <PrecisionSettings Settings = NativePrecision>
using PytorchRecorder = CheckpointRecorder<PytorchFormat, Settings>;

}  // namespace stele::inline v0
