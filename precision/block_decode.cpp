// Block decoders, compiled once for each SIMD target. Each type unpacks the codes of a block to bytes, in loops of
// fixed length that compilers vectorize. One loop for all types then multiplies the codes by their scales.
//
// Products and sums are computed in the order of ggml's code. The build forbids fused multiply-add, so that every
// target rounds equally.

#include "block_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "block_decode.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "block_grids.hpp"
#include "block_kernels.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::decoding::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using U8 = std::uint8_t;
using I8 = std::int8_t;
using Floats = hn::CappedTag<float, 8>;  // each run's length is a multiple of 8

template <class T>
HWY_INLINE HWY_ATTR T number(const U8* at) {
  return detail::load_le<T>(reinterpret_cast<const std::byte*>(at));
}
HWY_INLINE HWY_ATTR float f32(const U8* at) { return std::bit_cast<float>(number<std::uint32_t>(at)); }
HWY_INLINE HWY_ATTR float f16(const U8* at) {
  return std::bit_cast<float>(detail::f32_from_f16_bits(number<std::uint16_t>(at)));
}

// Converts codes to numbers.
HWY_INLINE HWY_ATTR hn::Vec<Floats> floats(const I8* codes) {
  const hn::Rebind<I8, Floats> bytes;
  const hn::Rebind<std::int32_t, Floats> integers;
  return hn::ConvertTo(Floats(), hn::PromoteTo(integers, hn::LoadU(bytes, codes)));
}

template <std::size_t kCount>
HWY_INLINE HWY_ATTR void scale(const I8* codes, float d, float* HWY_RESTRICT out) {
  const auto factor = hn::Set(Floats(), d);
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(Floats())) {
    hn::StoreU(hn::Mul(factor, floats(codes + i)), Floats(), out + i);
  }
}

template <std::size_t kCount>
HWY_INLINE HWY_ATTR void scale_and_add(const I8* codes, float d, float m, float* HWY_RESTRICT out) {
  const auto factor = hn::Set(Floats(), d);
  const auto summand = hn::Set(Floats(), m);
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(Floats())) {
    hn::StoreU(hn::Add(hn::Mul(factor, floats(codes + i)), summand), Floats(), out + i);
  }
}

// Splits `kBytes` bytes into their low and high nibbles, and subtracts `zero` from each. Uses explicit vectors, because
// g++ -O3 unrolls the loop and then does not vectorize it.
template <std::size_t kBytes>
HWY_INLINE HWY_ATTR void nibbles(const U8* HWY_RESTRICT q, I8* HWY_RESTRICT low, I8* HWY_RESTRICT high, int zero = 0) {
  const hn::CappedTag<U8, kBytes> d;
  const hn::RebindToSigned<decltype(d)> signed_d;
  const auto zeros = hn::Set(signed_d, static_cast<I8>(zero));
  for (std::size_t j = 0; j < kBytes; j += hn::Lanes(d)) {
    const auto both = hn::LoadU(d, q + j);
    const auto l = hn::BitCast(signed_d, hn::And(both, hn::Set(d, 15)));
    const auto h = hn::BitCast(signed_d, hn::ShiftRight<4>(both));
    hn::StoreU(hn::Sub(l, zeros), signed_d, low + j);
    hn::StoreU(hn::Sub(h, zeros), signed_d, high + j);
  }
}

// Replaces the nibbles of `kBytes` bytes by the numbers of a table.
template <std::size_t kBytes>
HWY_INLINE HWY_ATTR void look_up(const I8* HWY_RESTRICT table, const U8* HWY_RESTRICT q, I8* HWY_RESTRICT low,
                                 I8* HWY_RESTRICT high) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t j = 0; j < kBytes; ++j) {
    low[j] = table[q[j] & 15];
    high[j] = table[q[j] >> 4];
  }
#else
  static_assert(kBytes % 16 == 0);
  const hn::CappedTag<I8, kBytes> d;
  const hn::RebindToUnsigned<decltype(d)> unsigned_d;
  const auto numbers = hn::LoadDup128(d, table);
  for (std::size_t j = 0; j < kBytes; j += hn::Lanes(d)) {
    const auto both = hn::LoadU(unsigned_d, q + j);
    const auto l = hn::BitCast(d, hn::And(both, hn::Set(unsigned_d, 15)));
    const auto h = hn::BitCast(d, hn::ShiftRight<4>(both));
    hn::StoreU(hn::TableLookupBytes(numbers, l), d, low + j);
    hn::StoreU(hn::TableLookupBytes(numbers, h), d, high + j);
  }
#endif
}

// Expands the bits of a byte to eight bytes, lowest bit first: 0x80 for a set bit, else 0.
HWY_INLINE HWY_ATTR std::uint64_t spread(U8 bits) {
  const std::uint64_t one_each = (std::uint64_t{bits} * 0x0101010101010101u) & 0x8040201008040201u;
  return (one_each + 0x7F7F7F7F7F7F7F7Fu) & 0x8080808080808080u;
}

HWY_INLINE HWY_ATTR void store(std::uint64_t bytes, I8* at) {
  detail::store_le(reinterpret_cast<std::byte*>(at), bytes);
}

// Negates each of eight codes whose bit in `signs` is set.
HWY_INLINE HWY_ATTR void apply_signs(unsigned signs, I8* codes) {
  for (unsigned j = 0; j < 8; ++j) {
    const int negative = -static_cast<int>(signs >> j & 1);
    codes[j] = static_cast<I8>((codes[j] ^ negative) - negative);
  }
}

// Returns the eight sign bits for a 7-bit index. The eighth bit makes the number of set bits even.
HWY_INLINE HWY_ATTR unsigned even_signs(unsigned index) {
  return index | (static_cast<unsigned>(std::popcount(index)) & 1) << 7;
}

// Unpacks a point of a grid.
template <std::size_t kElements, unsigned kBits>
HWY_INLINE HWY_ATTR void point(unsigned packed, const I8* numbers, I8* codes) {
  for (std::size_t j = 0; j < kElements; ++j) codes[j] = numbers[packed >> (kBits * j) & ((1u << kBits) - 1)];
}
constexpr I8 kIq2[4] = {8, 25, 43, 0};
constexpr I8 kIq3Xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr I8 kIq3S[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// ---- One scale for each block. Each decoder returns true if the scales are finite.

struct Q4_0 {
  static constexpr DType kType = DType::q4_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    nibbles<16>(src + 2, codes, codes + 16, 8);
    const float d = f16(src);
    scale<32>(codes, d, dst);
    return std::isfinite(d);
  }
};

struct Q4_1 {
  static constexpr DType kType = DType::q4_1;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    nibbles<16>(src + 4, codes, codes + 16);
    const float d = f16(src);
    const float m = f16(src + 2);
    scale_and_add<32>(codes, d, m, dst);
    return std::isfinite(d) && std::isfinite(m);
  }
};

// Unpacks 32 codes of 5 bits, and subtracts `zero` from each.
HWY_INLINE HWY_ATTR void five_bits(const U8* high, const U8* low, I8* codes, int zero) {
  alignas(64) I8 top[32];
  for (std::size_t k = 0; k < 4; ++k) store(spread(high[k]) >> 3, top + 8 * k);
  nibbles<16>(low, codes, codes + 16);
  const hn::CappedTag<I8, 16> d;
  for (std::size_t j = 0; j < 32; j += hn::Lanes(d)) {
    const auto both = hn::Or(hn::Load(d, codes + j), hn::Load(d, top + j));
    hn::Store(hn::Sub(both, hn::Set(d, static_cast<I8>(zero))), d, codes + j);
  }
}

struct Q5_0 {
  static constexpr DType kType = DType::q5_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    five_bits(src + 2, src + 6, codes, 16);
    const float d = f16(src);
    scale<32>(codes, d, dst);
    return std::isfinite(d);
  }
};

struct Q5_1 {
  static constexpr DType kType = DType::q5_1;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    five_bits(src + 4, src + 8, codes, 0);
    const float d = f16(src);
    const float m = f16(src + 2);
    scale_and_add<32>(codes, d, m, dst);
    return std::isfinite(d) && std::isfinite(m);
  }
};

struct Q8_0 {
  static constexpr DType kType = DType::q8_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    const float d = f16(src);
    scale<32>(reinterpret_cast<const I8*>(src + 2), d, dst);
    return std::isfinite(d);
  }
};

struct Q8_1 {
  static constexpr DType kType = DType::q8_1;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    const float d = f16(src);
    scale<32>(reinterpret_cast<const I8*>(src + 4), d, dst);
    return std::isfinite(d);
  }
};

struct Q8K {
  static constexpr DType kType = DType::q8_k;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    const float d = f32(src);
    scale<256>(reinterpret_cast<const I8*>(src + 4), d, dst);
    return std::isfinite(d);
  }
};

struct Q1_0 {
  static constexpr DType kType = DType::q1_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[128];
    for (std::size_t k = 0; k < 16; ++k) store(spread(src[2 + k]) >> 6, codes + 8 * k);
    for (std::size_t j = 0; j < 128; ++j) codes[j] = static_cast<I8>(codes[j] - 1);
    const float d = f16(src);
    scale<128>(codes, d, dst);
    return std::isfinite(d);
  }
};

struct Q2_0 {
  static constexpr DType kType = DType::q2_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[64];
    for (std::size_t k = 0; k < 16; ++k) {
      for (std::size_t s = 0; s < 4; ++s) codes[4 * k + s] = static_cast<I8>((src[2 + k] >> (2 * s) & 3) - 1);
    }
    const float d = f16(src);
    scale<64>(codes, d, dst);
    return std::isfinite(d);
  }
};

struct Iq4Nl {
  static constexpr DType kType = DType::iq4_nl;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    look_up<16>(iq4_values, src + 2, codes, codes + 16);
    const float d = f16(src);
    scale<32>(codes, d, dst);
    return std::isfinite(d);
  }
};

struct Mxfp4 {
  static constexpr DType kType = DType::mxfp4;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    look_up<16>(e2m1_values, src + 1, codes, codes + 16);
    scale<32>(codes, std::bit_cast<float>(half_e8m0_bits(src[0])), dst);
    return true;
  }
};

struct Nvfp4 {
  static constexpr DType kType = DType::nvfp4;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 low[32];
    alignas(64) I8 high[32];
    look_up<32>(e2m1_values, src + 4, low, high);
    for (std::size_t s = 0; s < 4; ++s) {
      const float d = half_ue4m3(src[s]);
      scale<8>(low + 8 * s, d, dst + 16 * s);
      scale<8>(high + 8 * s, d, dst + 16 * s + 8);
    }
    return true;
  }
};

// ---- Three possible values for each element

// Unpacks digit `n` of numbers in base 3. Each byte is a fraction of 256, and the digits are the first digits of this
// fraction.
template <std::size_t kBytes>
HWY_INLINE HWY_ATTR void trits(const U8* HWY_RESTRICT bytes, unsigned power, I8* HWY_RESTRICT codes) {
  for (std::size_t j = 0; j < kBytes; ++j) {
    const auto rest = static_cast<U8>(bytes[j] * power);
    codes[j] = static_cast<I8>((static_cast<std::uint16_t>(rest * 3) >> 8) - 1);
  }
}

struct Tq1_0 {
  static constexpr DType kType = DType::tq1_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    constexpr unsigned powers[5] = {1, 3, 9, 27, 81};
    alignas(64) I8 codes[256];
    for (std::size_t n = 0; n < 5; ++n) trits<32>(src, powers[n], codes + 32 * n);
    for (std::size_t n = 0; n < 5; ++n) trits<16>(src + 32, powers[n], codes + 160 + 16 * n);
    for (std::size_t n = 0; n < 4; ++n) trits<4>(src + 48, powers[n], codes + 240 + 4 * n);
    const float d = f16(src + 52);
    scale<256>(codes, d, dst);
    return std::isfinite(d);
  }
};

// Unpacks fields of 2 bits: field s (0 to 3) is at bit 2s of each of 32 bytes.
HWY_INLINE HWY_ATTR void two_bits(const U8* HWY_RESTRICT q, I8* HWY_RESTRICT codes, int zero = 0) {
  for (std::size_t s = 0; s < 4; ++s) {
    for (std::size_t l = 0; l < 32; ++l) codes[32 * s + l] = static_cast<I8>((q[l] >> (2 * s) & 3) - zero);
  }
}

struct Tq2_0 {
  static constexpr DType kType = DType::tq2_0;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    two_bits(src, codes, 1);
    two_bits(src + 32, codes + 128, 1);
    const float d = f16(src + 64);
    scale<256>(codes, d, dst);
    return std::isfinite(d);
  }
};

// ---- K types

struct Q2K {
  static constexpr DType kType = DType::q2_k;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    two_bits(src + 16, codes);
    two_bits(src + 48, codes + 128);
    const float d = f16(src + 80);
    const float m = f16(src + 82);
    for (std::size_t k = 0; k < 16; ++k) {
      const auto s = static_cast<float>(src[k] & 15);
      const auto t = static_cast<float>(src[k] >> 4);
      scale_and_add<16>(codes + 16 * k, d * s, -(m * t), dst + 16 * k);
    }
    return std::isfinite(d) && std::isfinite(m);
  }
};

struct Q3K {
  static constexpr DType kType = DType::q3_k;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    two_bits(src + 32, codes);
    two_bits(src + 64, codes + 128);
    for (std::size_t s = 0; s < 8; ++s) {
      I8* run = codes + 32 * s;
      for (std::size_t l = 0; l < 32; ++l) run[l] = static_cast<I8>((run[l] | (src[l] >> s & 1) << 2) - 4);
    }
    const U8* sc = src + 96;
    const float d = f16(src + 108);
    for (std::size_t k = 0; k < 16; ++k) {
      const int low = k < 8 ? sc[k] & 15 : sc[k - 8] >> 4;
      const int high = sc[8 + k % 4] >> (2 * (k / 4)) & 3;
      scale<16>(codes + 16 * k, d * static_cast<float>((low | high << 4) - 32), dst + 16 * k);
    }
    return std::isfinite(d);
  }
};

// Multiplies eight runs of 32 codes by the 6-bit scales of q4_K and q5_K, and subtracts the minimums.
HWY_INLINE HWY_ATTR bool six_bit_scales(const U8* src, const I8* codes, float* HWY_RESTRICT dst) {
  const float d = f16(src);
  const float m = f16(src + 2);
  const U8* sc = src + 4;
  for (std::size_t k = 0; k < 8; ++k) {
    const int s = k < 4 ? sc[k] & 63 : (sc[k + 4] & 15) | (sc[k - 4] >> 6) << 4;
    const int t = k < 4 ? sc[k + 4] & 63 : sc[k + 4] >> 4 | (sc[k] >> 6) << 4;
    scale_and_add<32>(codes + 32 * k, d * static_cast<float>(s), -(m * static_cast<float>(t)), dst + 32 * k);
  }
  return std::isfinite(d) && std::isfinite(m);
}

struct Q4K {
  static constexpr DType kType = DType::q4_k;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    for (std::size_t g = 0; g < 4; ++g) nibbles<32>(src + 16 + 32 * g, codes + 64 * g, codes + 64 * g + 32);
    return six_bit_scales(src, codes, dst);
  }
};

struct Q5K {
  static constexpr DType kType = DType::q5_k;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    const U8* high = src + 16;
    for (std::size_t g = 0; g < 4; ++g) nibbles<32>(src + 48 + 32 * g, codes + 64 * g, codes + 64 * g + 32);
    for (std::size_t k = 0; k < 8; ++k) {
      I8* run = codes + 32 * k;
      for (std::size_t l = 0; l < 32; ++l) run[l] = static_cast<I8>(run[l] | (high[l] >> k & 1) << 4);
    }
    return six_bit_scales(src, codes, dst);
  }
};

struct Q6K {
  static constexpr DType kType = DType::q6_k;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    for (std::size_t h = 0; h < 2; ++h) {
      I8* half = codes + 128 * h;
      nibbles<64>(src + 64 * h, half, half + 64);
      const U8* high = src + 128 + 32 * h;
      for (std::size_t p = 0; p < 4; ++p) {
        I8* run = half + 32 * p;
        for (std::size_t l = 0; l < 32; ++l) run[l] = static_cast<I8>((run[l] | (high[l] >> (2 * p) & 3) << 4) - 32);
      }
    }
    const float d = f16(src + 208);
    for (std::size_t k = 0; k < 16; ++k) {
      const auto s = static_cast<float>(static_cast<I8>(src[192 + k]));
      scale<16>(codes + 16 * k, d * s, dst + 16 * k);
    }
    return std::isfinite(d);
  }
};

// ---- IQ types. `ib` counts runs of 32 elements, `l` the runs of 8 elements in it.

struct Iq2Xxs {
  static constexpr DType kType = DType::iq2_xxs;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      const U8* index = src + 2 + 8 * ib;
      const auto w = number<std::uint32_t>(index + 4);
      for (std::size_t l = 0; l < 4; ++l) {
        point<8, 2>(iq2_xxs_grid[index[l]], kIq2, codes + 8 * l);
        apply_signs(even_signs(w >> (7 * l) & 127), codes + 8 * l);
      }
      scale<32>(codes, d * (0.5F + static_cast<float>(w >> 28)) * 0.25F, dst + 32 * ib);
    }
    return std::isfinite(d);
  }
};

struct Iq2Xs {
  static constexpr DType kType = DType::iq2_xs;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      for (std::size_t l = 0; l < 4; ++l) {
        const unsigned v = number<std::uint16_t>(src + 2 + 8 * ib + 2 * l);
        point<8, 2>(iq2_xs_grid[v & 511], kIq2, codes + 8 * l);
        apply_signs(even_signs(v >> 9), codes + 8 * l);
      }
      const unsigned sc = src[66 + ib];
      scale<16>(codes, d * (0.5F + static_cast<float>(sc & 15)) * 0.25F, dst + 32 * ib);
      scale<16>(codes + 16, d * (0.5F + static_cast<float>(sc >> 4)) * 0.25F, dst + 32 * ib + 16);
    }
    return std::isfinite(d);
  }
};

struct Iq2S {
  static constexpr DType kType = DType::iq2_s;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      const unsigned high = src[66 + ib];
      for (std::size_t l = 0; l < 4; ++l) {
        point<8, 2>(iq2_s_grid[src[2 + 4 * ib + l] | (high << (8 - 2 * l) & 0x300)], kIq2, codes + 8 * l);
        apply_signs(src[34 + 4 * ib + l], codes + 8 * l);
      }
      const unsigned sc = src[74 + ib];
      scale<16>(codes, d * (0.5F + static_cast<float>(sc & 15)) * 0.25F, dst + 32 * ib);
      scale<16>(codes + 16, d * (0.5F + static_cast<float>(sc >> 4)) * 0.25F, dst + 32 * ib + 16);
    }
    return std::isfinite(d);
  }
};

struct Iq3Xxs {
  static constexpr DType kType = DType::iq3_xxs;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      const auto w = number<std::uint32_t>(src + 66 + 4 * ib);
      for (std::size_t l = 0; l < 4; ++l) {
        const U8* index = src + 2 + 8 * ib + 2 * l;
        point<4, 3>(iq3_xxs_grid[index[0]], kIq3Xxs, codes + 8 * l);
        point<4, 3>(iq3_xxs_grid[index[1]], kIq3Xxs, codes + 8 * l + 4);
        apply_signs(even_signs(w >> (7 * l) & 127), codes + 8 * l);
      }
      scale<32>(codes, d * (0.5F + static_cast<float>(w >> 28)) * 0.5F, dst + 32 * ib);
    }
    return std::isfinite(d);
  }
};

struct Iq3S {
  static constexpr DType kType = DType::iq3_s;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      const unsigned high = src[66 + ib];
      for (std::size_t l = 0; l < 4; ++l) {
        const U8* index = src + 2 + 8 * ib + 2 * l;
        point<4, 3>(iq3_s_grid[index[0] | (high << (8 - 2 * l) & 256)], kIq3S, codes + 8 * l);
        point<4, 3>(iq3_s_grid[index[1] | (high << (7 - 2 * l) & 256)], kIq3S, codes + 8 * l + 4);
        apply_signs(src[74 + 4 * ib + l], codes + 8 * l);
      }
      const int s = src[106 + ib / 2] >> (4 * (ib % 2)) & 15;
      scale<32>(codes, d * static_cast<float>(1 + 2 * s), dst + 32 * ib);
    }
    return std::isfinite(d);
  }
};

struct Iq4Xs {
  static constexpr DType kType = DType::iq4_xs;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    const int high = number<std::uint16_t>(src + 2);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      look_up<16>(iq4_values, src + 8 + 16 * ib, codes, codes + 16);
      const int s = (src[4 + ib / 2] >> (4 * (ib % 2)) & 15) | (high >> (2 * ib) & 3) << 4;
      scale<32>(codes, d * static_cast<float>(s - 32), dst + 32 * ib);
    }
    return std::isfinite(d);
  }
};

// Unpacks a point of iq1, and adds or subtracts an eighth. In units of an eighth: 8 (c - 1) + 1 or - 1.
HWY_INLINE HWY_ATTR void shifted_point(unsigned packed, bool down, I8* codes) {
  const int shift = down ? -9 : -7;
  for (std::size_t j = 0; j < 8; ++j) codes[j] = static_cast<I8>(static_cast<int>(packed >> (2 * j) & 3) * 8 + shift);
}

struct Iq1S {
  static constexpr DType kType = DType::iq1_s;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    const float d = f16(src);
    for (std::size_t ib = 0; ib < 8; ++ib) {
      const unsigned h = number<std::uint16_t>(src + 34 + 2 * ib);
      for (std::size_t l = 0; l < 4; ++l) {
        shifted_point(iq1_s_grid[src[2 + 4 * ib + l] | (h >> (3 * l) & 7) << 8], (h & 0x8000) != 0, codes + 8 * l);
      }
      scale<32>(codes, d * static_cast<float>(2 * (h >> 12 & 7) + 1) * 0.125F, dst + 32 * ib);
    }
    return std::isfinite(d);
  }
};

struct Iq1M {
  static constexpr DType kType = DType::iq1_m;
  static HWY_INLINE HWY_ATTR bool decode(const U8* src, float* HWY_RESTRICT dst) {
    alignas(64) I8 codes[32];
    unsigned sc[4];
    for (std::size_t k = 0; k < 4; ++k) sc[k] = number<std::uint16_t>(src + 48 + 2 * k);
    const unsigned bits = sc[0] >> 12 | (sc[1] >> 8 & 0xF0) | (sc[2] >> 4 & 0xF00) | (sc[3] & 0xF000);
    const auto d = std::bit_cast<float>(detail::f32_from_f16_bits(static_cast<std::uint16_t>(bits)));
    for (std::size_t ib = 0; ib < 8; ++ib) {
      for (std::size_t l = 0; l < 4; ++l) {
        const unsigned h = src[32 + 2 * ib + l / 2] >> (4 * (l % 2)) & 15;
        shifted_point(iq1_s_grid[src[4 * ib + l] | (h & 7) << 8], (h & 8) != 0, codes + 8 * l);
      }
      const unsigned both = sc[ib / 2] >> (6 * (ib % 2));
      scale<16>(codes, d * static_cast<float>(2 * (both & 7) + 1) * 0.125F, dst + 32 * ib);
      scale<16>(codes + 16, d * static_cast<float>(2 * (both >> 3 & 7) + 1) * 0.125F, dst + 32 * ib + 16);
    }
    return std::isfinite(d);
  }
};

// Sets every NaN to the same pattern, because the choice between two NaN operands and the sign of a new NaN depend on
// the machine.
HWY_NOINLINE void make_nans_equal(float* numbers, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(numbers[i])) numbers[i] = std::bit_cast<float>(0x7FC00000u);
  }
}

template <class Type>
HWY_ATTR void decode(const std::byte* src, float* HWY_RESTRICT dst, std::size_t blocks) {
  constexpr BlockSize size = block_size(Type::kType);
  const auto* bytes = reinterpret_cast<const U8*>(src);
  for (std::size_t i = 0; i < blocks; ++i) {
    float* out = dst + i * size.elements;
    if (!Type::decode(bytes + i * size.bytes, out)) make_nans_equal(out, size.elements);
  }
}

template <class... Types>
BlockDecoder find(DType d) {
  BlockDecoder found = nullptr;
  ((Types::kType == d ? static_cast<void>(found = &decode<Types>) : void()), ...);
  return found;
}

BlockDecoder decoder(DType d) {
  return find<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2K, Q3K, Q4K, Q5K, Q6K, Q8K, Iq2Xxs, Iq2Xs, Iq3Xxs, Iq1S, Iq4Nl,
              Iq3S, Iq2S, Iq4Xs, Iq1M, Tq1_0, Tq2_0, Mxfp4, Nvfp4, Q1_0, Q2_0>(d);
}

}  // namespace stele::inline v0::precision_detail::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0::precision_detail {

namespace decoding {
HWY_EXPORT(decoder);
static BlockDecoder best(DType d) noexcept { return HWY_DYNAMIC_DISPATCH(decoder)(d); }
}  // namespace decoding

BlockDecoder block_decoder(DType d) noexcept { return decoding::best(d); }

}  // namespace stele::inline v0::precision_detail

#endif  // HWY_ONCE
