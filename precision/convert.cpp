#include "stele/precision/convert.hpp"

#include <algorithm>
#include <cstring>

#include "float_modes.hpp"
#include "kernels.hpp"
#include "reference.hpp"

namespace stele::inline v0 {
namespace {

namespace pd = precision_detail;

// Elements per block (4 KiB of f32): the intermediate results of two-step conversions, and the range that is searched
// for a failing element.
constexpr std::size_t kBlock = 1024;

bool is_number(DType d) noexcept { return pd::is_float(d) || pd::is_integer(d); }

bool is_complex(DType d) noexcept { return dtype_class(d) == DTypeClass::complex; }

DType component(DType complex) noexcept { return complex == DType::c64 ? DType::f32 : DType::f64; }

/// The range of a dtype in powers of two: the number of significant bits, and the exponents of the lowest and the
/// highest bit.
struct NumberRange {
  int precision;
  int min_bit;
  int max_bit;
  bool is_signed;
  bool zero;
  bool negative_zero;
  bool infinity;
  bool nan;
};

NumberRange range_of(DType d) noexcept {
  if (d == DType::boolean) return {1, 0, 0, false, true, false, false, false};
  if (pd::is_integer(d)) {
    const int width = static_cast<int>(bits(d));
    const bool is_signed = dtype_class(d) == DTypeClass::signed_int;
    return {is_signed ? width - 1 : width, 0, width - 1, is_signed, true, false, false, false};
  }
  const pd::FloatLayout f = pd::layout_of(d);
  const int top = (1 << f.exponent_bits) - 1 - f.bias;
  const int min_bit = 1 - f.bias - f.fraction_bits;
  switch (f.specials) {
    case pd::Specials::ieee:
      return {f.fraction_bits + 1, min_bit, top - 1, true, true, true, true, true};
    case pd::Specials::finite_nan:
      return {f.fraction_bits + 1, min_bit, top, true, true, true, false, true};
    case pd::Specials::unsigned_zero:
      return {f.fraction_bits + 1, min_bit, top, true, true, false, false, true};
    case pd::Specials::exponent_only:
      break;
  }
  return {1, -f.bias, top - 1, false, false, false, false, true};
}

// Finds the first failing element of a block, or counts the overflows if they are allowed.
ConvertOutcome examine(DType from, const std::byte* src, DType to, std::size_t count, bool allow_overflow) noexcept {
  ConvertOutcome result;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t out = 0;
    const auto status = pd::convert_one(from, pd::load_bits(from, src + i * element_size(from)), to, out);
    if (status == ConvertStatus::ok) continue;
    if (status != ConvertStatus::overflow || !allow_overflow) return {status, i, 0};
    ++result.overflowed;
  }
  return result;
}

ConvertOutcome copy(DType d, const std::byte* src, std::byte* dst, std::size_t count) noexcept {
  if (d == DType::boolean && pd::any_bad_bool(src, count)) return examine(d, src, d, count, false);
  const std::size_t bytes = element_size(d) != 0 ? count * element_size(d) : (count * bits(d) + 7) / 8;
  if (src != dst && bytes != 0) std::memcpy(dst, src, bytes);
  return {};
}

/// One or two kernels that convert one float dtype to another.
struct Route {
  pd::Kernel first;
  pd::Kernel second;  // converts from f32; may be null
};

Route route(DType from, DType to) noexcept {
  const pd::FloatKernels k = pd::float_kernels();
  const auto from_f32 = [&k](DType d) {
    return d == DType::f16    ? k.f32_to_f16
           : d == DType::bf16 ? k.f32_to_bf16
           : d == DType::f64  ? k.f32_to_f64
                              : pd::to_eight_bits(DType::f32, d);
  };
  if (from == DType::f32) return {from_f32(to), nullptr};
  if (from == DType::f64) {
    if (to == DType::f32) return {k.f64_to_f32, nullptr};
    if (bits(to) == 8) return {pd::to_eight_bits(from, to), nullptr};
    return {k.f64_to_odd_f32, from_f32(to)};
  }
  const pd::Kernel to_f32 = from == DType::f16    ? k.f16_to_f32
                            : from == DType::bf16 ? k.bf16_to_f32
                                                  : pd::from_eight_bits(from);
  return {to_f32, to == DType::f32 ? nullptr : from_f32(to)};
}

ConvertOutcome convert_floats(DType from, const std::byte* src, DType to, std::byte* dst, std::size_t count,
                              bool allow_overflow) noexcept {
  const pd::DefaultFloatModes modes;
  const Route way = route(from, to);
  const std::size_t in = element_size(from);
  const std::size_t out = element_size(to);
  alignas(64) std::byte middle[kBlock * 4];
  ConvertOutcome total;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = std::min(kBlock, count - at);
    const std::byte* s = src + at * in;
    bool overflow = false;
    if (way.second == nullptr) {
      overflow = way.first(s, dst + at * out, n);
    } else {
      overflow = way.first(s, middle, n);
      overflow |= way.second(middle, dst + at * out, n);
    }
    if (!overflow) continue;
    // In an in-place conversion, the source is already overwritten. It then has at most 16 bits per element, so
    // `middle` has its exact values.
    const bool exact = way.second != nullptr && from != DType::f64;
    const ConvertOutcome found =
        exact ? examine(DType::f32, middle, to, n, allow_overflow) : examine(from, s, to, n, allow_overflow);
    if (found.status != ConvertStatus::ok) return {found.status, at + found.index, 0};
    total.overflowed += found.overflowed;
  }
  return total;
}

ConvertOutcome convert_ints(DType from, const std::byte* src, DType to, std::byte* dst, std::size_t count) noexcept {
  const std::size_t in = element_size(from);
  const std::size_t out = element_size(to);
  const pd::Kernel kernel = in == out ? nullptr : pd::int_kernel(from, to);
  constexpr std::size_t kPiece = 4 * kBlock;
  for (std::size_t at = 0; at < count; at += kPiece) {
    const std::size_t n = std::min(kPiece, count - at);
    const std::byte* s = src + at * in;
    const bool bad = kernel == nullptr ? pd::any_top_bit(s, in, n) : kernel(s, dst + at * out, n);
    if (bad) {
      const ConvertOutcome found = examine(from, s, to, n, false);
      return {found.status, at + found.index, 0};
    }
    if (kernel == nullptr && src != dst) std::memcpy(dst + at * out, s, n * in);
  }
  return {};
}

}  // namespace

bool convertible(DType from, DType to, ConvertRules rules) noexcept {
  if (bits(from) == 0 || bits(to) == 0) return false;
  if (from == to) return true;
  if (is_complex(from) || is_complex(to)) return is_complex(from) && is_complex(to);
  if (pd::is_float(from) && pd::is_float(to)) return true;
  if (pd::is_integer(from) && pd::is_integer(to)) return true;
  return rules.allow_kind_change && (is_number(from) || from == DType::boolean) &&
         (is_number(to) || to == DType::boolean);
}

bool lossless(DType from, DType to) noexcept {
  if (!convertible(from, to, {.allow_kind_change = true})) return false;
  if (from == to) return true;
  if (is_complex(from)) return to == DType::c128;
  if (to == DType::boolean) return false;
  const NumberRange a = range_of(from);
  const NumberRange b = range_of(to);
  if (pd::is_integer(to)) {
    // Only a float has bits below 1. Comparing precisions suffices: the lowest integer of a signed type needs one more
    // bit in both types.
    return !pd::is_float(from) && (!a.is_signed || b.is_signed) && a.precision <= b.precision;
  }
  return a.precision <= b.precision && a.min_bit >= b.min_bit && a.max_bit <= b.max_bit &&
         (!a.is_signed || b.is_signed) && (!a.zero || b.zero) && (!a.negative_zero || b.negative_zero) &&
         (!a.infinity || b.infinity) && (!a.nan || b.nan);
}

ConvertOutcome convert(DType from, const std::byte* src, DType to, std::byte* dst, std::size_t count,
                       ConvertRules rules) noexcept {
  if (!convertible(from, to, rules)) return {ConvertStatus::unsupported, 0, 0};
  if (from == to) return copy(from, src, dst, count);
  if (is_complex(from)) {
    ConvertOutcome r = convert_floats(component(from), src, component(to), dst, 2 * count, rules.allow_overflow);
    r.index /= 2;
    return r;
  }
  if (pd::is_float(from) && pd::is_float(to)) return convert_floats(from, src, to, dst, count, rules.allow_overflow);
  if (pd::is_integer(from) && pd::is_integer(to)) return convert_ints(from, src, to, dst, count);
  return pd::convert_reference(from, src, to, dst, count, rules.allow_overflow);
}

}  // namespace stele::inline v0
