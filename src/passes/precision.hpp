// Snapshot -> Snapshot: converts leaves to other dtypes, piece by piece.
#pragma once

#include <cstdint>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns the snapshot with each leaf converted to its dtype in `to`, which must be possible for the leaf.
STELE_EXPORT Snapshot with_dtypes(const Snapshot& snapshot, std::vector<DType> to, ConvertRules rules);

/// Returns the count of numbers of a converted leaf that became infinite when it was last read; 0 for other leaves.
STELE_EXPORT std::uint64_t overflowed(const LeafView& leaf) noexcept;

}  // namespace stele::inline v0::detail
