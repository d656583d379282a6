// PyTorch's files, read without Python: .pt, .pth, .bin, .ckpt. Byte layouts: docs/formats/pytorch.md.
//
// Reads the zip files of torch.save (since 1.6), its streams (before 1.6) and tar files (before 0.1.10), TorchScript
// and libtorch archives, exported programs (.pt2), folders of torch.distributed.checkpoint (DCP). Writes the zip file.
// Pickles are read as data: no content of a file makes the reader import a module or call a function.
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
  /// The path of the part of a file that contains the parameters, "" for the whole file: "state_dict",
  /// "model_state_dict". open_checkpoint() finds the parts of the usual checkpoints itself and needs the path only if
  /// there are several. On save of a checkpoint: its key ("model_state_dict" if empty).
  std::string part{};
  /// The path of the optimizer's state: a dict with `state` and `param_groups`. open_checkpoint() needs it only if
  /// there are several; on save, the default is "optimizer_state_dict".
  std::string optimizer{};
  /// The names of the parameters in the order of Python's `module.parameters()`, whose numbers PyTorch uses to store
  /// optimizer state. If empty: `param_names` of the file's groups, or the tensors in their order without `buffers`.
  std::vector<std::string> parameters{};
  /// Patterns (stele/pattern.hpp) of tensors that are buffers in Python, not parameters.
  std::vector<std::string> buffers{"*running_mean", "*running_var", "*num_batches_tracked"};
  /// Does not verify CRC-32: for files that were written with PyTorch's checksums disabled.
  bool ignore_checksums = false;
};

/// PyTorch's files. Names are the keys of nested dicts, lists and attributes, joined by dots, as in a state_dict: keys
/// are not escaped. Numbers, strings and lists of them are values. Tensors that share their elements are tied. Every
/// other object is a value: a map with `__class__` (its name in Python), `args` and `state`; if it contains tensors,
/// they are below its path, next to a string `__class__`.
///
/// Writes the file that torch.save(state_dict, path) writes: torch.load(path, weights_only=True, mmap=True) reads it.
/// Values, ties that names cannot express, and metadata are in an attribute of the dict (docs/formats/pytorch.md).
///
/// Errors of open, in addition to those of all formats: unsupported (a layout, dtype or quantization that PyTorch does
/// not document), duplicate (two tensors with one name).
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
  /// ({"model_state_dict": …, "optimizer_state_dict": …, "epoch": …}), a checkpoint of Lightning, or a plain
  /// state_dict. Kinds of state have PyTorch's names ("exp_avg", "exp_avg_sq", "momentum_buffer"); `step` is a kind
  /// too: a number for each parameter. `training.updater` contains the settings of the first group: Adam, Sgd, RmsProp,
  /// AdaGrad, with DL4J's names. Errors: not_found (the part does not exist), invalid_argument (parameters that do not
  /// match the file), malformed. Checkpoint::left_out lists all other content of the file.
  Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const override;
  bool stores_graphs() const noexcept override { return false; }
  /// Writes {"model_state_dict": …, "optimizer_state_dict": …, "epoch": …}; without optimizer state and training
  /// configuration, a state_dict. The settings of the groups come from the file from which the parameters were opened,
  /// or from `training.updater`. Errors: missing (optimizer state without settings).
  Status write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const override;

 private:
  PytorchOptions options_;
};

/// Returns the settings of an opened checkpoint's optimizer that are not in `training`, such as "param_groups.1.lr":
/// only PyTorch's files can store them.
STELE_EXPORT Result<std::vector<std::string>> settings_of_pytorch_alone(const Checkpoint& checkpoint);

template <PrecisionSettings Settings = NativePrecision>
using PytorchRecorder = CheckpointRecorder<PytorchFormat, Settings>;

}  // namespace stele::inline v0
