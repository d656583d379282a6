// Reads the parts of a checkpoint: the model's parameters, and the optimizer's state by parameter name.
#pragma once

#include "file.hpp"
#include "stele/checkpoint.hpp"
#include "stele/recorders/pytorch.hpp"

namespace stele::inline v0::detail::pytorch {

/// Reads a checkpoint. Errors: those of PytorchFormat::open_checkpoint.
Result<Checkpoint> checkpoint_of(File& file, const PytorchOptions& options, IndexBudget& memory);

}  // namespace stele::inline v0::detail::pytorch
