// Writes a checkpoint's optimizer state as torch.optim's state_dict, where parameters have numbers instead of names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "containers.hpp"
#include "plan.hpp"
#include "stele/checkpoint.hpp"
#include "stele/recorders/pytorch.hpp"

namespace stele::inline v0::detail::pytorch {

/// A group of parameters with the same settings.
struct Group {
  Value settings{Value::Map()};
  std::vector<std::uint32_t> parameters;  // their numbers
};

/// An array of a parameter's state.
struct StateTensor {
  std::uint32_t parameter = 0, kind = 0, leaf = 0;
};

struct OptimizerPlan {
  std::vector<Group> groups;
  std::vector<std::string> names;   // the parameters' names, by number
  std::vector<StateTensor> states;  // sorted by parameter, then by kind
};

/// Numbers the parameters and finds their state. `names`: all names of the checkpoint's tensors. The plan has no groups
/// if the settings are unknown and there is no state. Errors: invalid_argument (PytorchOptions::parameters), missing
/// (no settings), not_representable (state of a tensor other than a parameter, or state that PyTorch cannot store),
/// malformed.
Result<OptimizerPlan> plan_optimizer(const Checkpoint& checkpoint, std::span<const Entry> names,
                                     const PytorchOptions& options);

/// Writes the optimizer's state_dict. `parts`: the numbers of the kinds' snapshots in `tensors`.
void write_optimizer(pickle::Writer& out, std::string& text, TensorWriter& tensors, const Checkpoint& checkpoint,
                     const OptimizerPlan& plan, std::span<const std::uint32_t> parts);

}  // namespace stele::inline v0::detail::pytorch
