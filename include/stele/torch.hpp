// libtorch: converts a module's state_dict to a Snapshot and back, and also optimizers (docs/guide/libtorch.md). The
// component `torch`: configure with STELE_TORCH=ON and link stele::torch.
#pragma once

#include <string>
#include <vector>

#include "stele/optimizer_state.hpp"
#include "stele/options.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/training.hpp"

namespace torch {
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
}  // namespace torch

namespace stele::inline v0::torch {

/// Returns the parameters and buffers of a module, under PyTorch's dotted names. A tensor with several names becomes
/// one tensor and aliases. Copies only conjugated views, and tensors on other devices that are not contiguous tensors
/// of CUDA or HIP: those are read when the Snapshot is, by SaveOptions::transfer or by libtorch. The tensors live as
/// long as the Snapshot. Errors: unsupported (sparse, quantized, of a dtype that stele does not have, without data).
Result<Snapshot> snapshot_of(const ::torch::nn::Module& module);

/// Writes a state_dict into a module's tensors, without gradients, on any device. Strict, like load_into: names, shapes
/// and dtypes are checked first. On error, the module is unchanged, unless Error::partially_applied. For a tensor with
/// several names, one of them suffices. Errors: missing, unused, shape_mismatch, dtype_mismatch, kind_mismatch,
/// out_of_range, checksum, not_loadable (an expanded tensor, whose elements share memory), and those of snapshot_of.
Status load_state_dict(::torch::nn::Module& module, const Snapshot& snapshot,
                       const LoadOptions& options = default_load_options());

/// Returns the state of an optimizer of the module's parameters: torch::optim::SGD, Adam, AdamW, RMSprop, Adagrad. The
/// kinds have the names of Python: "step" (a number for each parameter), "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
/// "momentum_buffer", "square_avg", "grad_avg", "sum". Their tensors have the names of the parameters, and are copied
/// only from other devices; they live as long as the state. A tensor with several names is under the first one. A
/// parameter without state, because no step has changed it, is not in any kind. Errors: unsupported (another optimizer,
/// another kind of tensor), invalid_argument (a parameter of the optimizer is not one of the module).
Result<OptimizerState> optimizer_state_of(const ::torch::optim::Optimizer& optimizer,
                                          const ::torch::nn::Module& module);

/// Replaces the state of an optimizer of these classes, but not its settings (see set_updater()). Strict: each
/// parameter that requires a gradient needs all kinds that its group's settings use. A parameter that `options` allow
/// to be missing keeps its state. The patterns of `options` match names of parameters; paths in errors and in the
/// report begin with the kind. On error, nothing changes. Errors: missing, unused, shape_mismatch, dtype_mismatch,
/// kind_mismatch, out_of_range, checksum, malformed (a step that is not a count), and those of optimizer_state_of.
Status load_optimizer_state(::torch::optim::Optimizer& optimizer, const ::torch::nn::Module& module,
                            const OptimizerState& state, const LoadOptions& options = default_load_options());

/// Returns the names of an optimizer's parameters, in the optimizer's order. PyTorch's files store the optimizer's
/// state by numbers in that order: PytorchOptions::parameters. Errors: invalid_argument, as for optimizer_state_of().
Result<std::vector<std::string>> parameter_names_of(const ::torch::optim::Optimizer& optimizer,
                                                    const ::torch::nn::Module& module);

/// Returns the settings of an optimizer's first group: Adam, AMSGrad, AdamW, Sgd, Nesterovs, RmsProp, AdaGrad, with
/// DL4J's names of numbers (learningRate, beta1, beta2, epsilon, rmsDecay, momentum), and, if they differ from
/// PyTorch's defaults, weightDecay, amsgrad (of AdamW), momentum (of Sgd, RmsProp), dampening, centered,
/// learningRateDecay, initialAccumulatorValue. Errors: unsupported (another optimizer).
Result<TrainingObject> updater_of(const ::torch::optim::Optimizer& optimizer);

/// Sets the settings of all groups and the defaults; settings that the updater does not contain get PyTorch's defaults.
/// AdamW also accepts the settings of Adam, because older files do not distinguish them. On error, nothing changes.
/// Errors: unsupported (another optimizer; a member that it does not have, such as a schedule), invalid_argument (the
/// updater of another optimizer), out_of_range (a number that PyTorch does not accept).
Status set_updater(::torch::optim::Optimizer& optimizer, const TrainingObject& updater);

}  // namespace stele::inline v0::torch
