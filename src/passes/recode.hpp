// Snapshot -> Snapshot: converts floats to quantized integers or blocks, and back, piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "passes/integer_coding.hpp"
#include "stele/report.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

struct Differences;
struct Recoding;

/// Encodes floats of dtype `from`; the first one is element `first` of the tensor.
using Encode = Status (*)(const Recoding& recoding, DType from, std::span<const std::byte> in, std::uint64_t first,
                          std::byte* out, Differences& differences);
Status encode_integers(const Recoding& recoding, DType from, std::span<const std::byte> in, std::uint64_t first,
                       std::byte* out, Differences& differences);
Status encode_whole_blocks(const Recoding& recoding, DType from, std::span<const std::byte> in, std::uint64_t first,
                           std::byte* out, Differences& differences);

/// The target form of a leaf.
struct Recoding {
  DType to = DType::none;                   // none: the leaf is left unchanged
  std::optional<IntegerCoding> integers{};  // if empty, one of the dtypes is a block dtype
  Encode encode = nullptr;  // null: decodes the leaf; programs that only load do not contain the encoders
};

/// Returns the snapshot with each leaf recoded: plain floats to blocks or u8, blocks or integers to f32. `leaves` has
/// one element for each leaf. Removes the annotation `quantization` of recoded leaves; encoded integers get a new one.
STELE_EXPORT Snapshot recoded(const Snapshot& snapshot, std::vector<Recoding> leaves);

/// Adds a row for each encoded leaf, with its error when it was last read.
STELE_EXPORT void add_quantized_rows(const Snapshot& snapshot, Report& report);

/// Returns true if recoded() encodes the leaf.
STELE_EXPORT bool is_encoded(const LeafView& leaf) noexcept;

}  // namespace stele::inline v0::detail
