// The difference of two tensors, number by number.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "facts/statistics.hpp"

namespace stele::facts {

/// The differences of two tensors of one shape. A number differs if |a - b| > atol + rtol * |b|; NaN equals NaN.
struct Comparison {
  std::uint64_t count = 0;      // real numbers: two for each complex one
  std::uint64_t differing = 0;  // numbers beyond the tolerance
  std::uint64_t first = 0;      // the first different element, if any
  double max_abs = 0;           // maximum of |a - b|; infinite or NaN if exactly one of a and b is finite
  double max_rel = 0;           // maximum of |a - b| / |b|
  double squares = 0;           // the sum of (a - b)^2 where both are finite
  std::uint64_t nans = 0;       // numbers of which one is NaN and the other is not

  /// Returns the largest |a - b|, or |a - b| / |b|; NaN if one is NaN.
  double max_difference() const noexcept { return nans != 0 ? std::numeric_limits<double>::quiet_NaN() : max_abs; }
  double max_relative() const noexcept { return nans != 0 ? std::numeric_limits<double>::quiet_NaN() : max_rel; }
  /// Returns the root of the mean of (a - b)^2; NaN or infinite if a difference is NaN or infinite.
  double rms() const noexcept;
};

/// Compares two tensors with equal numbers of elements. Reads `a` whole, with its checksum, and `b` in blocks next to
/// it. Tensors without numbers (strings, opaque blocks) are compared byte by byte, as numbers. Errors: io, checksum,
/// cancelled.
Result<Comparison> compare_leaves(const LeafView& a, const LeafView& b, double atol, double rtol, ReadContext& context,
                                  const Advance& advance);

/// Returns dtype and shape: `f32 [2, 3]`.
std::string type_text(const LeafView& leaf);

}  // namespace stele::facts
