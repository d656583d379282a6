// Permutes the axes of tensors while they are read.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Permutes the axes of tensors. Calls `axes_of` for each leaf in order. It returns nullopt if the tensor is to remain
/// unchanged, else the tensor's axis for each axis of the result; an empty list reverses the axes. Errors:
/// invalid_argument (not a permutation), unsupported (packed elements).
STELE_EXPORT Result<Snapshot> transpose_where(
    const Snapshot& snapshot,
    const std::function<std::optional<std::vector<std::size_t>>(const LeafView& leaf)>& axes_of);

/// Returns the error for a tensor with packed elements, which cannot be separated.
STELE_EXPORT Error packed(std::string_view path, DType dtype);

}  // namespace stele::inline v0::detail
