// Quantization: tensors of floats as small integers, and back. Snapshot -> Snapshot, lazily.
//
// A quantized tensor is one of integers (u8 … i64) with an annotation `quantization`, a map that says what they stand
// for. Its numbers are "bits" wide, whatever the dtype. "scheme" is one of (NNEF 1.0.5, section 4.9.5, has the
// formulas; r is the number of steps):
//
//  - "linear": "min" and "max", "signed", "symmetric": (q + p) / r * (max - min) + min, where r is 2^bits - 1 (one less
//    where signed and symmetric), and p is 0, or 2^(bits - 1) where signed (one less where symmetric too).
//  - "zero_point": "scale" and "zero_point": (q - zero_point) * scale.
//  - "logarithmic": "max", "signed": 2^(q + ceil(log2(max)) - r), where r is 2^bits - 1. Signed: the top bit of the
//  bits
//    is the sign, and the rest q.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {

inline constexpr std::string_view quantization_key = "quantization";

struct Quantize {
  /// 2 to 8.
  unsigned bits = 8;
  /// Patterns (stele/pattern.hpp) of the tensors; those that are not f64, f32, f16 or bf16 stay as they are.
  std::vector<std::string> patterns{"*"};
};

/// Stores the tensors that match as u8, each between its own least and largest number: "linear", not signed. Reads each
/// of them twice now, and once more when it is saved. `report` may be null; else it gets a row for each, with the range
/// and the largest and the mean square error. Errors: invalid_argument (bits), out_of_range (a number that is
/// not finite), those of reading.
STELE_EXPORT Result<Snapshot> quantize(const Snapshot& snapshot, const Quantize& how = {}, Report* report = nullptr);

/// The quantized tensors that match as f32. Errors: unsupported (an annotation that is none of the above).
STELE_EXPORT Result<Snapshot> dequantize(const Snapshot& snapshot, const std::vector<std::string>& patterns = {"*"});

}  // namespace v0
}  // namespace stele
