// The parts of a checkpoint: a model's parameters, and the optimizer's state by their names.
#pragma once

#include "encodings/pytorch/file.hpp"
#include "stele/checkpoint.hpp"
#include "stele/recorders/pytorch.hpp"

namespace stele::inline v0::detail::pytorch {

/// Errors: those of PytorchFormat::open_checkpoint.
Result<Checkpoint> checkpoint_of(File& file, const PytorchOptions& options, IndexBudget& memory);

}  // namespace stele::inline v0::detail::pytorch
