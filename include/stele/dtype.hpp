// Element types of tensors. Freestanding, because the microcontroller reader uses it: no heap, exceptions or iostream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// The type of a tensor's elements. The numbers are the codes of the `.stele` format (docs/formats/stele.md) and are
/// never reused. Names follow the OCP/ML convention: f8_e4m3fn has 4 exponent and 3 mantissa bits, and "fn" means
/// finite values and NaN only.
enum class DType : std::uint16_t {
  none = 0,
  f64 = 1,
  f32 = 2,
  f16 = 3,
  bf16 = 4,
  f8_e4m3fn = 5,
  f8_e5m2 = 6,
  f8_e8m0 = 7,
  f8_e4m3fnuz = 8,
  f8_e5m2fnuz = 9,
  f6_e2m3 = 10,
  f6_e3m2 = 11,
  f4_e2m1 = 12,
  i64 = 16,
  i32 = 17,
  i16 = 18,
  i8 = 19,
  i4 = 20,
  u64 = 24,
  u32 = 25,
  u16 = 26,
  u8 = 27,
  u4 = 28,
  boolean = 32,
  c64 = 33,   // two f32: real, imaginary
  c128 = 34,  // two f64
  string = 40,
  opaque = 41,  // blocks in a vendor's own encoding; the leaf's annotations name it
};

enum class DTypeClass : std::uint8_t { none, floating, signed_int, unsigned_int, boolean, complex, string, opaque };

/// Returns the width of one element in bits; 0 if elements have no fixed width (string, opaque, none).
constexpr unsigned bits(DType d) noexcept {
  switch (d) {
    case DType::c128:
      return 128;
    case DType::f64:
    case DType::i64:
    case DType::u64:
    case DType::c64:
      return 64;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 32;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 16;
    case DType::f8_e4m3fn:
    case DType::f8_e5m2:
    case DType::f8_e8m0:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 8;
    case DType::f6_e2m3:
    case DType::f6_e3m2:
      return 6;
    case DType::f4_e2m1:
    case DType::i4:
    case DType::u4:
      return 4;
    case DType::none:
    case DType::string:
    case DType::opaque:
      return 0;
  }
  return 0;
}

/// Returns the size of one element in bytes; 0 for packed (sub-byte) and unsized dtypes.
constexpr unsigned element_size(DType d) noexcept { return bits(d) % 8 == 0 ? bits(d) / 8 : 0; }

/// Returns the size in bytes of the unit that is byte-swapped between little- and big-endian machines. A complex number
/// has two such units.
constexpr unsigned swap_unit(DType d) noexcept {
  if (d == DType::c64) return 4;
  if (d == DType::c128) return 8;
  return element_size(d) == 0 ? 1 : element_size(d);
}

constexpr DTypeClass dtype_class(DType d) noexcept {
  const auto code = static_cast<unsigned>(d);
  if (d == DType::none || bits(d) == 0) {
    return d == DType::string ? DTypeClass::string : d == DType::opaque ? DTypeClass::opaque : DTypeClass::none;
  }
  if (code < 16) return DTypeClass::floating;
  if (code < 24) return DTypeClass::signed_int;
  if (code < 32) return DTypeClass::unsigned_int;
  return d == DType::boolean ? DTypeClass::boolean : DTypeClass::complex;
}

/// Returns true for the four float types that PrecisionSettings::Float accepts and converts: f64, f32, f16, bf16.
constexpr bool is_plain_float(DType d) noexcept { return d >= DType::f64 && d <= DType::bf16; }

/// Returns true for codes that this version knows.
constexpr bool is_known(DType d) noexcept { return dtype_class(d) != DTypeClass::none; }

/// Returns "f32", "i64", "bool", …; "none" for an unknown code.
constexpr std::string_view name(DType d) noexcept {
  switch (d) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f8_e4m3fn:
      return "f8_e4m3fn";
    case DType::f8_e5m2:
      return "f8_e5m2";
    case DType::f8_e8m0:
      return "f8_e8m0";
    case DType::f8_e4m3fnuz:
      return "f8_e4m3fnuz";
    case DType::f8_e5m2fnuz:
      return "f8_e5m2fnuz";
    case DType::f6_e2m3:
      return "f6_e2m3";
    case DType::f6_e3m2:
      return "f6_e3m2";
    case DType::f4_e2m1:
      return "f4_e2m1";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::i16:
      return "i16";
    case DType::i8:
      return "i8";
    case DType::i4:
      return "i4";
    case DType::u64:
      return "u64";
    case DType::u32:
      return "u32";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
    case DType::u4:
      return "u4";
    case DType::boolean:
      return "bool";
    case DType::c64:
      return "c64";
    case DType::c128:
      return "c128";
    case DType::string:
      return "string";
    case DType::opaque:
      return "opaque";
    case DType::none:
      break;
  }
  return "none";
}

/// Returns a * b, or nullopt if the product does not fit 64 bits.
constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// Returns a + b, or nullopt if the sum does not fit 64 bits.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// Counts the elements of a tensor, extent by extent. The product of the nonzero extents must fit 64 bits, even if
/// another extent is 0: every format refuses a tensor whose strides would overflow.
class ElementCounter {
 public:
  constexpr void add(std::uint64_t extent) noexcept {
    if (extent == 0) {
      empty_ = true;
    } else {
      fits_ = fits_ && !__builtin_mul_overflow(count_, extent, &count_);
    }
  }
  /// Returns the count, or nullopt if the product does not fit 64 bits.
  constexpr std::optional<std::uint64_t> count() const noexcept {
    return fits_ ? std::optional<std::uint64_t>(empty_ ? 0 : count_) : std::nullopt;
  }

 private:
  std::uint64_t count_ = 1;
  bool empty_ = false;
  bool fits_ = true;
};

/// Returns the size in bytes of `count` packed elements (the last byte may be partly used); nullopt if it does not fit
/// 64 bits or `d` is unsized.
constexpr std::optional<std::uint64_t> byte_length(DType d, std::uint64_t count) noexcept {
  if (bits(d) == 0) return std::nullopt;
  if (element_size(d) != 0) return checked_mul(count, element_size(d));
  const auto all = checked_mul(count, bits(d));
  return all ? std::optional<std::uint64_t>(*all / 8 + (*all % 8 != 0)) : std::nullopt;
}

}  // namespace v0
}  // namespace stele
