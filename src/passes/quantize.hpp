// What saves need of quantization beyond stele/quantize.hpp.
#pragma once

#include <functional>

#include "stele/quantize.hpp"

namespace stele::inline v0::detail {

/// quantize() for all tensors of floats. Their ranges are read from `reading`, which has the same leaves.
Result<Snapshot> quantized(const Snapshot& snapshot, unsigned bits, const Snapshot& reading);

/// Returns the choice of the first rule that matches a leaf's path. `rules` must outlive it.
STELE_EXPORT std::function<DType(const LeafView&)> first_rule(std::span<const BlockRule> rules);

/// Returns the snapshot with its floats at the dtypes that `choose` returns: a block dtype, a plain float, or none to
/// leave the leaf unchanged. Vectors are not stored as blocks. Adds a row to `report` (or null) for a leaf whose rows
/// are not whole blocks, and which gets another dtype.
STELE_EXPORT Result<Snapshot> with_blocks(const Snapshot& snapshot, const std::function<DType(const LeafView&)>& choose,
                                          Report* report);

/// with_blocks(); if `report` is not null, reads the tensors now and adds the rows of their errors.
STELE_EXPORT Result<Snapshot> quantize_as(const Snapshot& snapshot, const std::function<DType(const LeafView&)>& choose,
                                          Report* report);

/// Returns the snapshot with those quantized leaves as f32 for which `which` returns true (all if it is empty). Leaves
/// with an unknown scheme stay as they are.
STELE_EXPORT Snapshot with_floats(const Snapshot& snapshot,
                                  const std::function<bool(const LeafView&)>& which = nullptr);

}  // namespace stele::inline v0::detail
