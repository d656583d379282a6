// The variables of a Paddle program that its parameter file holds.
#pragma once

#include <vector>

#include "stele/recorders/paddle.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace paddle {

/// Sorted by name.
Result<std::vector<PaddleVariable>> read_program(const Source& source);

/// The program beside the parameter file `name` in `folder`: x.pdmodel or x.json of x.pdiparams, __model__ or
/// __model__.json of __params__; nullptr where there is none. JSON that does not begin as a program is none.
Result<SourcePtr> program_beside(const Bundle& folder, std::string_view name);

}  // namespace paddle
}  // namespace detail
}  // namespace v0
}  // namespace stele
