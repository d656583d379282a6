// Quantization: converts float tensors to small integers or blocks, and back. Snapshot -> Snapshot, lazily.
//
// A quantized tensor either has a block dtype (q8_0, q4_K, …; stele/precision/blocks.hpp), whose blocks contain their
// scales; or it has integers (u8 … i64) and an annotation `quantization`, a map that contains their formula. The
// integers have "bits" bits, independent of the dtype. "scheme" is one of the following (NNEF 1.0.5, section 4.9.5, has
// the formulas; r is the number of steps):
//
// - "linear": "min" and "max", "signed", "symmetric": (q + p) / r * (max - min) + min. r is 2^bits - 1 (one less if
//   signed and symmetric). p is 0, or 2^(bits - 1) if signed (one less if symmetric too).
// - "zero_point": "scale" and "zero_point": (q - zero_point) * scale. With an "axis" (an integer below the rank), both
// are lists with one number for each index c along this axis: (q - zero_point[c]) * scale[c].
// - "logarithmic": "max", "signed": 2^(q + ceil(log2(max)) - r). r is 2^bits - 1. If signed, the top bit is the sign,
//   and the other bits are q.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

inline constexpr std::string_view quantization_key = "quantization";

struct Quantize {
  /// The number of bits, 2 to 8.
  unsigned bits = 8;
  /// Patterns (stele/pattern.hpp) of the tensors; tensors that are not f64, f32, f16 or bf16 are unchanged.
  std::vector<std::string> patterns{"*"};
};

/// Stores the matching tensors as u8, each in the range from its minimum to its maximum: "linear", unsigned. Reads each
/// tensor twice now, and once more when it is saved. `report` may be null; otherwise it gets a row for each tensor,
/// with the range and the maximum and mean square error. Errors: invalid_argument (bits), out_of_range (a number that
/// is not finite), those of reading.
STELE_EXPORT Result<Snapshot> quantize(const Snapshot& snapshot, const Quantize& how = {}, Report* report = nullptr);

/// Stores each float tensor at the dtype of the first rule that matches it; other tensors are unchanged. Only tensors
/// of rank 2 and higher become blocks. If the rows of a tensor are not whole blocks, it gets the nearest dtype with
/// smaller blocks (q4_K: q5_0, q5_K: q5_1, q6_K: q8_0; q2_K, q3_K and tq: q4_0), or f16. `report` may be null;
/// otherwise the tensors are read now, and it gets a row for each tensor, with the largest, the mean and the mean
/// square error, and a row `kept` for each tensor that got another dtype; if it is null, the save of the result adds
/// the rows. Errors: unsupported (a dtype that is neither encodable() nor a plain float); later, when a tensor is read,
/// out_of_range (a number that is not finite).
STELE_EXPORT Result<Snapshot> quantize_blocks(const Snapshot& snapshot, std::span<const BlockRule> rules,
                                              Report* report = nullptr);

/// Converts the matching quantized tensors to f32. Errors: unsupported (an annotation with an unknown scheme, or with
/// lists or an axis that do not match the tensor).
STELE_EXPORT Result<Snapshot> dequantize(const Snapshot& snapshot, const std::vector<std::string>& patterns = {"*"});
/// Converts the quantized tensors for which `which` returns true to f32. Errors: those of dequantize().
STELE_EXPORT Result<Snapshot> dequantize_if(const Snapshot& snapshot,
                                            const std::function<bool(const LeafView&)>& which);

}  // namespace stele::inline v0
