// The variables of a Paddle program that are stored in its parameter file.
#pragma once

#include <vector>

#include "stele/recorders/paddle.hpp"

namespace stele::inline v0::detail::paddle {

/// Reads a program's persistable variables, sorted by name.
Result<std::vector<PaddleVariable>> read_program(const Source& source);

/// Opens the program next to the parameter file `name` in `folder`: x.pdmodel or x.json for x.pdiparams, __model__ or
/// __model__.json for __params__. Returns nullptr if there is none, or if the JSON does not begin like a program.
Result<SourcePtr> program_beside(const Bundle& folder, std::string_view name);

}  // namespace stele::inline v0::detail::paddle
