// Snapshot -> Snapshot: floats as quantized integers or blocks, and back, piece by piece.
#pragma once

#include <optional>
#include <vector>

#include "passes/integer_coding.hpp"
#include "stele/report.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// The other form of a leaf.
struct Recoding {
  DType to = DType::none;                   // none: the leaf stays as it is
  std::optional<IntegerCoding> integers{};  // else one of the dtypes is a block dtype
};

/// Returns the snapshot with each leaf recoded: plain floats to blocks or u8, blocks or integers to f32. `leaves` has
/// an element for each leaf. The annotation `quantization` of a recoded leaf is removed; encoded integers get a new
/// one.
STELE_EXPORT Snapshot recoded(const Snapshot& snapshot, std::vector<Recoding> leaves);

/// Adds a row for each encoded leaf, with the error of the last time it was read.
STELE_EXPORT void add_quantized_rows(const Snapshot& snapshot, Report& report);

/// Returns true if recoded() encodes the leaf.
STELE_EXPORT bool is_encoded(const LeafView& leaf) noexcept;

}  // namespace stele::inline v0::detail
