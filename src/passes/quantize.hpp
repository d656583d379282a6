// Functions of quantization for saves, in addition to stele/quantize.hpp.
#pragma once

#include <functional>
#include <string>

#include "stele/quantize.hpp"

namespace stele::inline v0::detail {

/// Quantizes all float tensors, like quantize(). Reads their ranges from `reading`, which must have the same leaves.
Result<Snapshot> quantized(const Snapshot& snapshot, unsigned bits, const Snapshot& reading);

/// The dtype for a leaf: a block dtype, a plain float, or none to leave the leaf unchanged.
struct Choice {
  DType dtype = DType::none;
  std::string kept{};  // the reason why the leaf is unchanged, although another dtype was asked for
};
using Choose = std::function<Choice(const LeafView&)>;

/// Returns the choice of the first rule that matches a leaf's path. `rules` must outlive it.
STELE_EXPORT Choose first_rule(std::span<const BlockRule> rules);

/// Returns the snapshot with its floats converted to the dtypes that `choose` returns. Vectors are not stored as
/// blocks. For each leaf that has another dtype than the one asked for, because its rows are not whole blocks or it is
/// kept, adds a row to `report`; if that is null, the save of the snapshot adds the row (with_kept_rows()).
STELE_EXPORT Result<Snapshot> with_blocks(const Snapshot& snapshot, const Choose& choose, Report* report);

/// Like with_blocks(). If `report` is not null, also reads the tensors now and adds the rows of their errors.
STELE_EXPORT Result<Snapshot> quantize_as(const Snapshot& snapshot, const Choose& choose, Report* report);

/// Adds the rows that with_blocks() left to the save. Returns the snapshot without them.
Snapshot with_kept_rows(const Snapshot& snapshot, Report& report);

/// Returns the snapshot with the quantized leaves for which `which` returns true (all if it is empty) as f32. Leaves
/// with an unknown scheme are left unchanged.
STELE_EXPORT Snapshot with_floats(const Snapshot& snapshot,
                                  const std::function<bool(const LeafView&)>& which = nullptr);

}  // namespace stele::inline v0::detail
