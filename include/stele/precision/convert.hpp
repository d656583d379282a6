// Conversion of element arrays between dtypes. Compiled once, SIMD inside, the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele {
inline namespace v0 {

enum class ConvertStatus : std::uint8_t {
  ok,
  overflow,      // a number became infinite, or NaN where the target has no infinity
  out_of_range,  // an integer does not fit, or a float is no integer of the target (fraction, NaN, infinity)
  bad_bool,      // a bool byte other than 0 or 1
  unsupported,   // no such conversion, or only with allow_kind_change
};

struct ConvertRules {
  bool allow_overflow = false;
  bool allow_kind_change = false;  // int <-> float, bool <-> number
};

struct ConvertOutcome {
  ConvertStatus status = ConvertStatus::ok;
  std::uint64_t index = 0;       // the first offending element of this call
  std::uint64_t overflowed = 0;  // elements that overflowed, where that is allowed

  friend constexpr bool operator==(const ConvertOutcome&, const ConvertOutcome&) noexcept = default;
};

/// Whether `convert` takes the pair: the same dtype, float to float (8-bit floats too), complex to complex, integer to
/// integer; integer <-> float and bool <-> number with allow_kind_change. Packed dtypes only to themselves; strings and
/// opaque blocks never.
STELE_EXPORT bool convertible(DType from, DType to, ConvertRules rules = {}) noexcept;

/// True when every value of `from` is exactly a value of `to`, signed zeros and infinities included; payloads of NaNs
/// do not count.
STELE_EXPORT bool lossless(DType from, DType to) noexcept;

/// Converts `count` elements in host byte order. `src` and `dst` may be unaligned and must not overlap, except that
/// `src == dst` is allowed for dtypes of equal width. After an error the contents of `dst` are unspecified.
///
/// Floats round once, to nearest, ties to even, whatever the caller's floating-point environment. NaNs become quiet and
/// keep their sign and leading payload bits; a copy (from == to) changes no bit. A float becomes an integer only if it
/// is one. 8-bit floats without infinity (f8_e4m3fn, *fnuz) take NaN for what is too large, as ml_dtypes does when it
/// does not saturate; f8_e8m0 (OCP MX) takes NaN for zero and negative numbers too, each counted as an overflow.
STELE_EXPORT ConvertOutcome convert(DType from, const std::byte* src, DType to, std::byte* dst, std::size_t count,
                                    ConvertRules rules = {}) noexcept;

}  // namespace v0
}  // namespace stele
