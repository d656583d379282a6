// The constants of an ML program.
#pragma once

#include "model.hpp"

namespace stele::inline v0::detail::coreml {

/// Reads the Program in the bytes [begin, end) of a model. Errors: those of read_model().
Status read_program(const SourcePtr& model, const std::shared_ptr<const Bundle>& folder, const std::string& prefix,
                    std::uint64_t begin, std::uint64_t end, Tensors& to);

}  // namespace stele::inline v0::detail::coreml
