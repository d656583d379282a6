// Functions of the SIMD translation units, for blocks.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0::precision_detail {

/// The numbers that the codes 0 to 15 of iq4_nl and iq4_xs represent.
inline constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

/// The numbers that the codes of mxfp4 and nvfp4 (E2M1) represent, doubled to make them integers.
inline constexpr std::int8_t e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

using BlockDecoder = void (*)(const std::byte* src, float* dst, std::size_t blocks);
using BlockEncoder = void (*)(const float* src, std::byte* dst, std::size_t blocks);

/// Returns the decoder for the best target of this machine, or null if `d` is not a block dtype. The decoder requires
/// DefaultFloatModes.
BlockDecoder block_decoder(DType d) noexcept;

/// Returns the encoder for the best target of this machine, or null if `d` has none. All numbers of its source must be
/// finite. The encoder requires DefaultFloatModes.
BlockEncoder block_encoder(DType d) noexcept;

/// Returns the encoder of a type whose scales are fitted (q2_K to q6_K), or null.
BlockEncoder fitting_encoder(DType d) noexcept;

/// Returns true if one of `count` numbers is not finite.
bool any_not_finite(const float* src, std::size_t count) noexcept;

/// Returns 2^(code - 128): half the value of an E8M0 scale, for the doubled numbers of mxfp4. The codes 0 and 1 give
/// subnormal numbers.
constexpr std::uint32_t half_e8m0_bits(std::uint8_t code) noexcept {
  return code < 2 ? std::uint32_t{0x200000} << code : static_cast<std::uint32_t>(code - 1) << 23;
}

/// Returns half the value of an nvfp4 scale (unsigned E4M3). Returns 0 for the NaN pattern, as ggml does.
constexpr float half_ue4m3(std::uint8_t code) noexcept {
  if (code == 0 || code == 0x7F) return 0;
  const int exponent = code >> 3 & 15;
  const int fraction = code & 7;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10F;
  return static_cast<float>((8 + fraction) << exponent) * 0x1p-11F;
}

}  // namespace stele::inline v0::precision_detail
