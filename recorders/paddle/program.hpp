// Reads the variables of a Paddle program that its parameter file stores.
#pragma once

#include <vector>

#include "stele/recorders/paddle.hpp"

namespace stele::inline v0::detail::paddle {

/// Reads a program's persistable variables, sorted by name.
Result<std::vector<PaddleVariable>> read_program(const Source& source);

/// Opens the program next to the parameter file `name` in `folder`: x.pdmodel or x.json for x.pdiparams, __model__ or
/// __model__.json for __params__. Returns nullptr if the folder has no program, or if the JSON does not begin like one.
Result<SourcePtr> program_beside(const Bundle& folder, std::string_view name);

}  // namespace stele::inline v0::detail::paddle
