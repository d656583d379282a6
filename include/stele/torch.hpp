// libtorch modules: a Snapshot from their state_dict, and back (docs/guide/libtorch.md). The component `torch`:
// configure with STELE_TORCH=ON and link stele::torch.
#pragma once

#include "stele/options.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace torch {
namespace nn {
class Module;
}
}  // namespace torch

namespace stele {
inline namespace v0 {
namespace torch {

/// Returns the parameters and buffers of a module, under PyTorch's dotted names. A tensor with several names becomes
/// one tensor and aliases. Copies only tensors of other devices and conjugated views; the tensors stay alive with the
/// Snapshot. Errors: unsupported (sparse, quantized, of a dtype that stele lacks, without data).
Result<Snapshot> snapshot_of(const ::torch::nn::Module& module);

/// Writes a state_dict into a module's tensors, without gradients, on any device. Strict, like load_into: names, shapes
/// and dtypes are checked first. On error, nothing changes, unless Error::partially_applied. A tensor with several
/// names needs one of them. Errors: missing, unused, shape_mismatch, dtype_mismatch, kind_mismatch, out_of_range,
/// checksum, not_loadable (an expanded tensor, whose elements share one place in memory), and those of snapshot_of.
Result<Report> load_state_dict(::torch::nn::Module& module, const Snapshot& snapshot,
                               const LoadOptions& options = default_load_options());

}  // namespace torch
}  // namespace v0
}  // namespace stele
