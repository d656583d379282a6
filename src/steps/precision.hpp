// Snapshot -> Snapshot: converts leaves to other dtypes, piece by piece.
#pragma once

#include <vector>

#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Returns the snapshot with each leaf at its dtype of `to`, which a float or integer leaf converts to.
STELE_EXPORT Snapshot with_dtypes(const Snapshot& snapshot, std::vector<DType> to, ConvertRules rules);

}  // namespace detail
}  // namespace v0
}  // namespace stele
