// The scalar reference of every conversion: decodes and encodes numbers with integer arithmetic, written for clarity
// instead of speed. The kernels use it to find the failing element, and the tests compare the kernels with it. (For f32
// <-> f16 and bf16 the reference is stele/precision/element.hpp; the tests verify that both agree.)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stele/precision/convert.hpp"
#include "stele/precision/element.hpp"

namespace stele::inline v0::precision_detail {

enum class Specials : std::uint8_t {
  ieee,           // infinities and NaNs have the maximum exponent
  finite_nan,     // "fn": no infinity, NaN is all ones
  unsigned_zero,  // "fnuz": no infinity, no -0; the pattern of -0 is the only NaN
  exponent_only,  // e8m0: no sign, no zero, no infinity, NaN is all ones
};

struct FloatLayout {
  int exponent_bits;
  int fraction_bits;
  int bias;
  Specials specials;
};

/// Returns the layout of a float dtype of whole bytes. exponent_bits is 0 for all other dtypes.
constexpr FloatLayout layout_of(DType d) noexcept {
  switch (d) {
    case DType::f64:
      return {11, 52, 1023, Specials::ieee};
    case DType::f32:
      return {8, 23, 127, Specials::ieee};
    case DType::f16:
      return {5, 10, 15, Specials::ieee};
    case DType::bf16:
      return {8, 7, 127, Specials::ieee};
    case DType::f8_e4m3fn:
      return {4, 3, 7, Specials::finite_nan};
    case DType::f8_e5m2:
      return {5, 2, 15, Specials::ieee};
    case DType::f8_e4m3fnuz:
      return {4, 3, 8, Specials::unsigned_zero};
    case DType::f8_e5m2fnuz:
      return {5, 2, 16, Specials::unsigned_zero};
    case DType::f8_e8m0:
      return {8, 0, 127, Specials::exponent_only};
    default:
      return {0, 0, 0, Specials::ieee};
  }
}

/// A decoded number. A finite number is (-1)^negative * significand * 2^(exponent - 63), with bit 63 of the significand
/// set. A NaN has its payload in the significand below bit 63, with the leading (quiet) bit at bit 62.
struct Number {
  enum class Kind : std::uint8_t { zero, finite, infinite, nan };
  Kind kind = Kind::zero;
  bool negative = false;
  int exponent = 0;
  std::uint64_t significand = 0;
};

struct Encoded {
  std::uint64_t bits = 0;
  bool overflow = false;
};

constexpr Number decode_float(FloatLayout layout, std::uint64_t bits) noexcept {
  const int m = layout.fraction_bits;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << m) - 1);
  const int top = (1 << layout.exponent_bits) - 1;
  const int biased = static_cast<int>(bits >> m) & top;
  Number n;
  n.negative = layout.specials != Specials::exponent_only && ((bits >> (m + layout.exponent_bits)) & 1) != 0;
  switch (layout.specials) {
    case Specials::ieee:
      if (biased != top) break;
      n.kind = fraction == 0 ? Number::Kind::infinite : Number::Kind::nan;
      n.significand = fraction << (63 - m);
      return n;
    case Specials::finite_nan:
      if (biased != top || fraction != (std::uint64_t{1} << m) - 1) break;
      n.kind = Number::Kind::nan;
      return n;
    case Specials::unsigned_zero:
      if (!n.negative || biased != 0 || fraction != 0) break;
      n.negative = false;
      n.kind = Number::Kind::nan;
      return n;
    case Specials::exponent_only:
      n.kind = biased == top ? Number::Kind::nan : Number::Kind::finite;
      n.exponent = biased - layout.bias;
      n.significand = std::uint64_t{1} << 63;
      return n;
  }
  if (biased == 0 && fraction == 0) return n;
  n.kind = Number::Kind::finite;
  if (biased == 0) {
    const int lead = std::countl_zero(fraction);
    n.significand = fraction << lead;
    n.exponent = 1 - layout.bias - (lead - (63 - m));
  } else {
    n.significand = (std::uint64_t{1} << 63) | (fraction << (63 - m));
    n.exponent = biased - layout.bias;
  }
  return n;
}

constexpr Encoded encode_float(FloatLayout layout, const Number& n) noexcept {
  const int m = layout.fraction_bits;
  const std::uint64_t sign = n.negative ? std::uint64_t{1} << (m + layout.exponent_bits) : 0;
  const std::uint64_t ones = (std::uint64_t{1} << (m + layout.exponent_bits)) - 1;  // all bits except the sign
  const bool ieee = layout.specials == Specials::ieee;
  std::uint64_t nan = sign | ones;
  if (layout.specials == Specials::unsigned_zero) nan = ones + 1;
  if (layout.specials == Specials::exponent_only) nan = ones;
  const std::uint64_t infinity = ones & ~((std::uint64_t{1} << m) - 1);
  if (n.kind == Number::Kind::nan) {
    if (!ieee) return {nan, false};
    const std::uint64_t payload = (n.significand | (std::uint64_t{1} << 62)) << 1 >> (64 - m);
    return {sign | infinity | payload, false};
  }
  if (n.kind == Number::Kind::infinite) return ieee ? Encoded{sign | infinity, false} : Encoded{nan, true};
  if (layout.specials == Specials::exponent_only && (n.kind == Number::Kind::zero || n.negative)) return {nan, true};
  if (n.kind == Number::Kind::zero) return {layout.specials == Specials::unsigned_zero ? 0 : sign, false};

  int biased = n.exponent + layout.bias;
  const int min_biased = layout.specials == Specials::exponent_only ? 0 : 1;
  int shift = 63 - m;
  if (biased < min_biased) {  // subnormal, or below the smallest e8m0 number, to which it rounds
    if (layout.specials == Specials::exponent_only) return {0, false};
    shift += min_biased - biased;
    biased = min_biased;
  }
  std::uint64_t kept = 0;
  if (shift < 64) {
    kept = n.significand >> shift;
    const std::uint64_t rest = n.significand << (64 - shift);
    const std::uint64_t half = std::uint64_t{1} << 63;
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  } else if (shift == 64 && n.significand > std::uint64_t{1} << 63) {
    kept = 1;
  }
  // `kept` includes the hidden bit, which adds one to the exponent field. A carry from the rounding adds one, too.
  const std::uint64_t magnitude = (static_cast<std::uint64_t>(biased - 1) << m) + kept;
  if (biased > (1 << layout.exponent_bits)) return ieee ? Encoded{sign | infinity, true} : Encoded{nan, true};
  switch (layout.specials) {
    case Specials::ieee:
      if (magnitude >= infinity) return {sign | infinity, true};
      break;
    case Specials::finite_nan:
    case Specials::exponent_only:
      if (magnitude >= ones) return {nan, true};
      break;
    case Specials::unsigned_zero:
      if (magnitude > ones) return {nan, true};
      if (magnitude == 0) return {0, false};
      break;
  }
  return {sign | magnitude, false};
}

constexpr Number decode_int(bool negative, std::uint64_t magnitude) noexcept {
  Number n;
  if (magnitude == 0) return n;
  const int lead = std::countl_zero(magnitude);
  n.kind = Number::Kind::finite;
  n.negative = negative;
  n.exponent = 63 - lead;
  n.significand = magnitude << lead;
  return n;
}

/// Encodes `n` as two's complement in 64 bits. Overflows if `n` is not an integer or does not fit.
constexpr Encoded encode_int(unsigned width, bool is_signed, const Number& n) noexcept {
  if (n.kind == Number::Kind::zero) return {};
  if (n.kind != Number::Kind::finite || n.exponent < 0 || n.exponent > 63) return {0, true};
  const int drop = 63 - n.exponent;
  const std::uint64_t magnitude = n.significand >> drop;
  if (magnitude << drop != n.significand) return {0, true};
  const std::uint64_t limit = is_signed    ? (std::uint64_t{1} << (width - 1)) - (n.negative ? 0 : 1)
                              : n.negative ? 0
                                           : ~std::uint64_t{0} >> (64 - width);
  if (magnitude > limit) return {0, true};
  return {n.negative ? ~magnitude + 1 : magnitude, false};
}

constexpr bool is_integer(DType d) noexcept {
  return element_size(d) != 0 &&
         (dtype_class(d) == DTypeClass::signed_int || dtype_class(d) == DTypeClass::unsigned_int);
}

constexpr bool is_float(DType d) noexcept { return layout_of(d).exponent_bits != 0; }

/// Loads one element of a dtype of 1, 2, 4 or 8 bytes into the low bits.
inline std::uint64_t load_bits(DType d, const std::byte* at) noexcept {
  const auto load = [at](auto v) {
    std::memcpy(&v, at, sizeof v);
    return static_cast<std::uint64_t>(v);
  };
  switch (element_size(d)) {
    case 1:
      return load(std::uint8_t{});
    case 2:
      return load(std::uint16_t{});
    case 4:
      return load(std::uint32_t{});
    default:
      return load(std::uint64_t{});
  }
}

inline void store_bits(DType d, std::byte* at, std::uint64_t bits) noexcept {
  const auto store = [at](auto v) { std::memcpy(at, &v, sizeof v); };
  switch (element_size(d)) {
    case 1:
      return store(static_cast<std::uint8_t>(bits));
    case 2:
      return store(static_cast<std::uint16_t>(bits));
    case 4:
      return store(static_cast<std::uint32_t>(bits));
    default:
      return store(bits);
  }
}

constexpr Number decode(DType d, std::uint64_t bits) noexcept {
  if (is_float(d)) return decode_float(layout_of(d), bits);
  if (dtype_class(d) != DTypeClass::signed_int) return decode_int(false, bits);
  const unsigned spare = 64 - stele::bits(d);
  const auto value = static_cast<std::int64_t>(bits << spare) >> spare;
  const auto word = static_cast<std::uint64_t>(value);
  return decode_int(value < 0, value < 0 ? ~word + 1 : word);
}

/// Converts one element (float, integer or bool of whole bytes). Input and output are in the low bits.
constexpr ConvertStatus convert_one(DType from, std::uint64_t in, DType to, std::uint64_t& out) noexcept {
  if (from == DType::boolean && in > 1) return ConvertStatus::bad_bool;
  const Number n = decode(from, in);
  Encoded e;
  if (is_float(to)) {
    e = encode_float(layout_of(to), n);
    out = e.bits;
    return e.overflow ? ConvertStatus::overflow : ConvertStatus::ok;
  }
  e = to == DType::boolean ? encode_int(1, false, n)
                           : encode_int(stele::bits(to), dtype_class(to) == DTypeClass::signed_int, n);
  out = e.bits;
  return e.overflow ? ConvertStatus::out_of_range : ConvertStatus::ok;
}

/// Implements `convert` in scalar code for any pair of floats, integers and bool.
inline ConvertOutcome convert_reference(DType from, const std::byte* src, DType to, std::byte* dst, std::size_t count,
                                        bool allow_overflow) noexcept {
  ConvertOutcome result;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t out = 0;
    const auto status = convert_one(from, load_bits(from, src + i * element_size(from)), to, out);
    if (status == ConvertStatus::overflow && allow_overflow) {
      ++result.overflowed;
    } else if (status != ConvertStatus::ok) {
      return {status, i, 0};
    }
    store_bits(to, dst + i * element_size(to), out);
  }
  return result;
}

}  // namespace stele::inline v0::precision_detail
