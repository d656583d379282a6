// Numbers that a few bits encode, with scales for groups of them: the weights of quantized checkpoints. All arithmetic
// is in f32, each operation rounded once; identical bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Scale of a run of codes: number = ((table[code] - zero) * scale + bias) * factor. The defaults change nothing.
struct CodeScale {
  float scale = 1, zero = 0, bias = -0.0F, factor = 1;
};

/// Decodes `count` codes, all below 256, with the same scale. `table` has 256 numbers.
STELE_EXPORT void decode_codes(const std::uint8_t* codes, const float* table, CodeScale scale, float* out,
                               std::size_t count) noexcept;

/// Unpacks `count` codes of 4 bits, two in each byte.
STELE_EXPORT void unpack_halves(const std::byte* bytes, bool low_first, std::uint8_t* codes,
                                std::size_t count) noexcept;

/// The layout of codes in words of 32 bits, lowest bits first, for widths that do not divide 32.
enum class CodeLayout : std::uint8_t {
  dense,   ///< one string of bits
  padded,  ///< each word has whole codes; its top bits are unused
  planes,  ///< 32 codes of b bits in b words: the lowest 4, 2 or 1 bits of all codes first, then their remaining bits
};

/// Unpacks `count` codes of `bits` (1 to 8) bits.
STELE_EXPORT void unpack_bits(const std::byte* bytes, unsigned bits, CodeLayout layout, std::uint8_t* codes,
                              std::size_t count) noexcept;

/// Returns the number of words with `count` codes.
constexpr std::uint64_t code_words(std::uint64_t count, unsigned bits, CodeLayout layout) noexcept {
  const std::uint64_t n = layout == CodeLayout::padded ? count : count * bits;
  const std::uint64_t each = layout == CodeLayout::padded ? 32 / bits : 32;
  return n / each + (n % each != 0 ? 1 : 0);
}

/// Transposes a matrix of words of 4 bytes.
STELE_EXPORT void transpose_words(const std::byte* from, std::size_t rows, std::size_t columns, std::byte* to) noexcept;

/// Unpacks the 4 bits from bit `shift` (a multiple of 4) of each little-endian word of 4 bytes.
STELE_EXPORT void unpack_field(const std::byte* words, unsigned shift, std::uint8_t* codes, std::size_t count) noexcept;

// ---- from numbers to codes

/// The lowest and the highest of numbers.
struct Extremes {
  float low = 0, high = 0;
  bool finite = true;
};
STELE_EXPORT Extremes extremes(const float* numbers, std::size_t count) noexcept;

/// Sets each code to the integer nearest to number / scale (ties to even), limited to [low, high], plus `zero`. All
/// limits are below 2^22.
STELE_EXPORT void encode_integers(const float* numbers, float scale, float low, float high, float zero,
                                  std::uint8_t* codes, std::size_t count) noexcept;
/// Sets each code to the float of 4 bits (e2m1) nearest to number / scale, ties to even.
STELE_EXPORT void encode_e2m1(const float* numbers, float scale, std::uint8_t* codes, std::size_t count) noexcept;
/// Sets each code to the number of `bounds` (15, increasing) that are below number / scale.
STELE_EXPORT void encode_between(const float* numbers, float scale, const float* bounds, std::uint8_t* codes,
                                 std::size_t count) noexcept;
/// Packs an even number of codes of 4 bits, two in each byte.
STELE_EXPORT void pack_halves(const std::uint8_t* codes, bool low_first, std::byte* bytes, std::size_t count) noexcept;

}  // namespace stele::inline v0::detail
