// Functions of quantization for saves, in addition to stele/quantize.hpp.
#pragma once

#include <functional>

#include "stele/quantize.hpp"

namespace stele::inline v0::detail {

/// Quantizes all float tensors, like quantize(). Reads their ranges from `reading`, which must have the same leaves.
Result<Snapshot> quantized(const Snapshot& snapshot, unsigned bits, const Snapshot& reading);

/// Returns the choice of the first rule that matches a leaf's path. `rules` must outlive it.
STELE_EXPORT std::function<DType(const LeafView&)> first_rule(std::span<const BlockRule> rules);

/// Returns the snapshot with its floats converted to the dtypes that `choose` returns: a block dtype, a plain float, or
/// none to leave the leaf unchanged. Vectors are not stored as blocks. If a leaf gets another dtype because its rows
/// are not whole blocks, adds a row to `report` (may be null).
STELE_EXPORT Result<Snapshot> with_blocks(const Snapshot& snapshot, const std::function<DType(const LeafView&)>& choose,
                                          Report* report);

/// Like with_blocks(). If `report` is not null, also reads the tensors now and adds the rows of their errors.
STELE_EXPORT Result<Snapshot> quantize_as(const Snapshot& snapshot, const std::function<DType(const LeafView&)>& choose,
                                          Report* report);

/// Returns the snapshot with the quantized leaves for which `which` returns true (all if it is empty) as f32. Leaves
/// with an unknown scheme are left unchanged.
STELE_EXPORT Snapshot with_floats(const Snapshot& snapshot,
                                  const std::function<bool(const LeafView&)>& which = nullptr);

}  // namespace stele::inline v0::detail
