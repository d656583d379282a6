// Weights as the parts of a scheme of quantized checkpoints, encoded when they are read.
#pragma once

#include "stele/report.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::composites {

/// Returns true if the leaf has the codes of a weight that quantize_weights() encodes.
bool is_encoded(const LeafView& leaf) noexcept;

/// Adds the row of a weight, with its error when its codes were last read.
void add_encoded_row(const LeafView& codes, Report& report);

}  // namespace stele::inline v0::detail::composites
