// Conversion of element arrays between dtypes. Compiled once, uses SIMD, gives identical bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0 {

enum class ConvertStatus : std::uint8_t {
  ok,
  overflow,      // a number became infinite, or NaN if the target has no infinity
  out_of_range,  // an integer does not fit, or a float is not an integer of the target (fraction, NaN, infinity)
  bad_bool,      // a bool byte other than 0 or 1
  unsupported,   // the conversion does not exist, or needs allow_kind_change
};

struct ConvertRules {
  bool allow_overflow = false;
  bool allow_kind_change = false;  // int <-> float, bool <-> number
};

struct ConvertOutcome {
  ConvertStatus status = ConvertStatus::ok;
  std::uint64_t index = 0;       // the first offending element of this call
  std::uint64_t overflowed = 0;  // number of elements that overflowed, if overflow is allowed

  friend constexpr bool operator==(const ConvertOutcome&, const ConvertOutcome&) noexcept = default;
};

/// Returns true if `convert` supports the pair: equal dtypes, float to float (including 8-bit floats), complex to
/// complex, integer to integer; with allow_kind_change also integer <-> float and bool <-> number. Packed dtypes
/// convert only to themselves; strings and opaque blocks never convert.
STELE_EXPORT bool convertible(DType from, DType to, ConvertRules rules = {}) noexcept;

/// Returns true if every value of `from` is exactly a value of `to`, including signed zeros and infinities. NaN
/// payloads are ignored.
STELE_EXPORT bool lossless(DType from, DType to) noexcept;

/// Converts `count` elements in host byte order. `src` and `dst` may be unaligned and must not overlap, except that
/// `src == dst` is allowed for dtypes of equal width. After an error, the content of `dst` is unspecified.
///
/// Floats round once, to nearest, ties to even, independent of the caller's floating-point environment. NaNs become
/// quiet and keep their sign and leading payload bits; a copy (from == to) changes no bit. A float converts to an
/// integer only if its value is an integer. In 8-bit floats without infinity (f8_e4m3fn, *fnuz), a number that is too
/// large becomes NaN, as in ml_dtypes without saturation. In f8_e8m0 (OCP MX), zero and negative numbers become NaN
/// too; each counts as an overflow.
STELE_EXPORT ConvertOutcome convert(DType from, const std::byte* src, DType to, std::byte* dst, std::size_t count,
                                    ConvertRules rules = {}) noexcept;

}  // namespace stele::inline v0
