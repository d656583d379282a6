// Tensors whose axes are permuted as they are read.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Permutes the axes of tensors: `axes_of` gives nothing for one that stays, else which axis of it each axis of the
/// result is; an empty list: the other way round. It is called for each leaf in turn. Errors: invalid_argument (no
/// permutation), unsupported (packed elements).
STELE_EXPORT Result<Snapshot> transpose_where(
    const Snapshot& snapshot,
    const std::function<std::optional<std::vector<std::size_t>>(const LeafView& leaf)>& axes_of);

/// Tensors of these elements cannot be taken apart.
STELE_EXPORT Error packed(std::string_view path, DType dtype);

}  // namespace detail
}  // namespace v0
}  // namespace stele
