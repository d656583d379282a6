// Element types of tensors. Freestanding, because the microcontroller reader uses it: no heap, exceptions or iostream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// The type of a tensor's elements. The numbers are the codes in the `.stele` format (docs/formats/stele.md) and are
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
  opaque = 41,  // a vendor-specific encoding; the leaf's annotations name it
  // Blocks: 64 + the number of the type in ggml (GGUF). A block holds consecutive elements of the last axis, with their
  // scales (stele/precision/blocks.hpp).
  q4_0 = 66,
  q4_1 = 67,
  q5_0 = 70,
  q5_1 = 71,
  q8_0 = 72,
  q8_1 = 73,
  q2_k = 74,
  q3_k = 75,
  q4_k = 76,
  q5_k = 77,
  q6_k = 78,
  q8_k = 79,
  iq2_xxs = 80,
  iq2_xs = 81,
  iq3_xxs = 82,
  iq1_s = 83,
  iq4_nl = 84,
  iq3_s = 85,
  iq2_s = 86,
  iq4_xs = 87,
  iq1_m = 93,
  tq1_0 = 98,
  tq2_0 = 99,
  mxfp4 = 103,
  nvfp4 = 104,
  q1_0 = 105,
  q2_0 = 106,
};

enum class DTypeClass : std::uint8_t {
  none,
  floating,
  signed_int,
  unsigned_int,
  boolean,
  complex,
  string,
  opaque,
  blocks,
};

/// The block of a block dtype: `elements` consecutive numbers in `bytes` bytes.
struct BlockSize {
  std::uint16_t elements = 0;
  std::uint16_t bytes = 0;
};

namespace detail {

struct BlockType {
  std::string_view name;
  BlockSize size;
};

// Indexed from the first block dtype. Sizes: ggml-common.h of ggml d99724f.
inline constexpr BlockType block_types[] = {
    {"q4_0", {32, 18}},
    {"q4_1", {32, 20}},
    {},
    {},
    {"q5_0", {32, 22}},
    {"q5_1", {32, 24}},
    {"q8_0", {32, 34}},
    {"q8_1", {32, 36}},
    {"q2_K", {256, 84}},
    {"q3_K", {256, 110}},
    {"q4_K", {256, 144}},
    {"q5_K", {256, 176}},
    {"q6_K", {256, 210}},
    {"q8_K", {256, 292}},
    {"iq2_xxs", {256, 66}},
    {"iq2_xs", {256, 74}},
    {"iq3_xxs", {256, 98}},
    {"iq1_s", {256, 50}},
    {"iq4_nl", {32, 18}},
    {"iq3_s", {256, 110}},
    {"iq2_s", {256, 82}},
    {"iq4_xs", {256, 136}},
    {},
    {},
    {},
    {},
    {},
    {"iq1_m", {256, 56}},
    {},
    {},
    {},
    {},
    {"tq1_0", {256, 54}},
    {"tq2_0", {256, 66}},
    {},
    {},
    {},
    {"mxfp4", {32, 17}},
    {"nvfp4", {64, 36}},
    {"q1_0", {128, 18}},
    {"q2_0", {64, 18}},
};
static_assert(sizeof(block_types) / sizeof(BlockType) == std::size_t{106 - 66 + 1});

constexpr BlockType block_type(DType d) noexcept {
  const auto code = static_cast<unsigned>(d);
  return code >= 66 && code <= 106 ? block_types[code - 66] : BlockType{};
}

}  // namespace detail

/// Returns the size of a block; {0, 0} for a dtype that is not a block dtype.
constexpr BlockSize block_size(DType d) noexcept { return detail::block_type(d).size; }
constexpr bool is_block(DType d) noexcept { return block_size(d).elements != 0; }

/// Returns the width of one element in bits; 0 if elements have no fixed width (string, opaque, blocks, none).
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
    default:
      return 0;
  }
}

/// Returns the size of one element in bytes; 0 for packed (sub-byte), block and unsized dtypes.
constexpr unsigned element_size(DType d) noexcept { return bits(d) % 8 == 0 ? bits(d) / 8 : 0; }

/// Returns the size in bytes of the unit whose bytes are swapped between little- and big-endian machines. A complex
/// number has two such units.
constexpr unsigned swap_unit(DType d) noexcept {
  if (d == DType::c64) return 4;
  if (d == DType::c128) return 8;
  return element_size(d) == 0 ? 1 : element_size(d);
}

constexpr DTypeClass dtype_class(DType d) noexcept {
  const auto code = static_cast<unsigned>(d);
  if (d == DType::none || bits(d) == 0) {
    if (is_block(d)) return DTypeClass::blocks;
    return d == DType::string ? DTypeClass::string : d == DType::opaque ? DTypeClass::opaque : DTypeClass::none;
  }
  if (code < 16) return DTypeClass::floating;
  if (code < 24) return DTypeClass::signed_int;
  if (code < 32) return DTypeClass::unsigned_int;
  return d == DType::boolean ? DTypeClass::boolean : DTypeClass::complex;
}

/// Returns true for the four float types that PrecisionSettings::Float accepts and converts: f64, f32, f16, bf16.
constexpr bool is_plain_float(DType d) noexcept { return d >= DType::f64 && d <= DType::bf16; }

/// Returns true for codes that this version supports.
constexpr bool is_known(DType d) noexcept { return dtype_class(d) != DTypeClass::none; }

/// Returns "f32", "i64", "bool", "q4_K", …; "none" for an unknown code.
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
    default:
      return is_block(d) ? detail::block_type(d).name : std::string_view("none");
  }
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
/// another extent is 0, because every format refuses a tensor whose strides would overflow.
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

/// Returns the size in bytes of `count` packed elements (the last byte may be partly used) or of whole blocks of them;
/// nullopt if it does not fit 64 bits, if `count` is not a number of whole blocks, or if `d` is unsized.
constexpr std::optional<std::uint64_t> byte_length(DType d, std::uint64_t count) noexcept {
  if (const BlockSize block = block_size(d); block.elements != 0) {
    return count % block.elements == 0 ? checked_mul(count / block.elements, block.bytes) : std::nullopt;
  }
  if (bits(d) == 0) return std::nullopt;
  if (element_size(d) != 0) return checked_mul(count, element_size(d));
  const auto all = checked_mul(count, bits(d));
  return all ? std::optional<std::uint64_t>(*all / 8 + (*all % 8 != 0)) : std::nullopt;
}

}  // namespace stele::inline v0
