// Encoders of blocks whose scales follow from the largest numbers, compiled once for each SIMD target. The results
// equal those of ggml's reference functions, built without fused multiply-add, bit for bit.
//
// The scale of a block of tiny numbers may have no finite inverse. ggml then converts infinities to integers, which is
// undefined behavior in C++. On x86 the low byte is 0, so these encoders write 0.

#include "block_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "block_encode.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "block_kernels.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::encoding::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using U8 = std::uint8_t;
using I8 = std::int8_t;
using Floats = hn::CappedTag<float, 8>;  // each run's length is a multiple of 8
using Integers = hn::RebindToSigned<Floats>;
using VF = hn::Vec<Floats>;

HWY_INLINE HWY_ATTR VF set(float x) { return hn::Set(Floats(), x); }
HWY_INLINE HWY_ATTR VF load(const float* x) { return hn::LoadU(Floats(), x); }

HWY_INLINE HWY_ATTR void store_f16(float value, U8* at) {
  detail::store_le(reinterpret_cast<std::byte*>(at), detail::f16_from_f32_bits(std::bit_cast<std::uint32_t>(value)));
}

// Returns the inverse by which the numbers are multiplied, or 0 if the inverse is not finite.
HWY_INLINE HWY_ATTR float inverse(float d) {
  const float inverse = 1 / d;
  return d != 0 && std::isfinite(inverse) ? inverse : 0;
}
// Returns true if `inverse` is 0 because the scale is tiny.
HWY_INLINE HWY_ATTR bool tiny(float d, float inverse) { return d != 0 && inverse == 0; }

template <std::size_t kCount>
HWY_INLINE HWY_ATTR float largest_magnitude(const float* HWY_RESTRICT x) {
  VF m = hn::Abs(load(x));
  for (std::size_t i = hn::Lanes(Floats()); i < kCount; i += hn::Lanes(Floats())) m = hn::Max(m, hn::Abs(load(x + i)));
  return hn::GetLane(hn::MaxOfLanes(Floats(), m));
}

struct Range {
  float min;
  float max;
};

template <std::size_t kCount>
HWY_INLINE HWY_ATTR Range range(const float* HWY_RESTRICT x) {
  VF low = load(x);
  VF high = low;
  for (std::size_t i = hn::Lanes(Floats()); i < kCount; i += hn::Lanes(Floats())) {
    low = hn::Min(low, load(x + i));
    high = hn::Max(high, load(x + i));
  }
  return {hn::GetLane(hn::MinOfLanes(Floats(), low)), hn::GetLane(hn::MaxOfLanes(Floats(), high))};
}

// Returns `value`. For a zero, returns the first element that equals it, so that its sign is that of a search from the
// start.
template <std::size_t kCount>
HWY_INLINE HWY_ATTR float first_zero(const float* x, float value) {
  if (value != 0) return value;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (x[i] == 0) return x[i];
  }
  return value;
}

// Returns the number of largest magnitude, with its sign. If two have equal magnitudes, returns the first. Returns 0 if
// all are 0.
template <std::size_t kCount>
HWY_INLINE HWY_ATTR float extreme(const float* x) {
  const Range r = range<kCount>(x);
  const float high = r.max;
  const float low = -r.min;
  if (high != low) return high > low ? r.max : r.min;
  if (high == 0) return 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (std::fabs(x[i]) == high) return x[i];
  }
  return high;
}

// Converts x * factor + summand to bytes, truncated to integers, which must fit.
template <std::size_t kCount, class Byte>
HWY_INLINE HWY_ATTR void cut(const float* HWY_RESTRICT x, float factor, float summand, Byte* HWY_RESTRICT codes) {
  const hn::Rebind<Byte, Floats> bytes;
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(Floats())) {
    const VF v = hn::Add(hn::Mul(load(x + i), set(factor)), set(summand));
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(Integers(), v)), bytes, codes + i);
  }
}

// Converts x * factor to bytes, rounded to the nearest integer, ties away from 0. Adds the largest f32 below a half,
// because with a half the sum would round up numbers just below a half.
template <std::size_t kCount>
HWY_INLINE HWY_ATTR void round_away(const float* HWY_RESTRICT x, float factor, I8* HWY_RESTRICT codes) {
  const hn::Rebind<I8, Floats> bytes;
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(Floats())) {
    const VF v = hn::Mul(load(x + i), set(factor));
    const VF up = hn::Add(v, hn::CopySign(set(0x1.FFFFFEp-2F), v));
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(Integers(), up)), bytes, codes + i);
  }
}

template <std::size_t kCount>
HWY_INLINE HWY_ATTR void at_most(U8 limit, U8* codes) {
  for (std::size_t i = 0; i < kCount; ++i) codes[i] = codes[i] < limit ? codes[i] : limit;
}

// Packs 32 codes of 4 bits, the second 16 in the high nibbles.
HWY_INLINE HWY_ATTR void pack_nibbles(const U8* HWY_RESTRICT codes, U8* HWY_RESTRICT q) {
  for (std::size_t j = 0; j < 16; ++j) q[j] = static_cast<U8>((codes[j] & 15) | codes[j + 16] << 4);
}

HWY_INLINE HWY_ATTR void pack_fifth_bits(const U8* codes, U8* high) {
  std::uint32_t bits = 0;
  for (unsigned j = 0; j < 32; ++j) bits |= static_cast<std::uint32_t>(codes[j] >> 4 & 1) << j;
  detail::store_le(reinterpret_cast<std::byte*>(high), bits);
}

struct Q4_0 {
  static constexpr DType kType = DType::q4_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[32] = {};
    const float d = extreme<32>(x) / -8;
    const float id = inverse(d);
    if (!tiny(d, id)) cut<32>(x, id, 8.5F, codes);
    at_most<32>(15, codes);
    store_f16(d, dst);
    pack_nibbles(codes, dst + 2);
  }
};

struct Q5_0 {
  static constexpr DType kType = DType::q5_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[32] = {};
    const float d = extreme<32>(x) / -16;
    const float id = inverse(d);
    if (!tiny(d, id)) cut<32>(x, id, 16.5F, codes);
    at_most<32>(31, codes);
    store_f16(d, dst);
    pack_fifth_bits(codes, dst + 2);
    pack_nibbles(codes, dst + 6);
  }
};

// Encodes the distances from the minimum, in `steps` steps.
HWY_INLINE HWY_ATTR void encode_distance(const float* HWY_RESTRICT x, float steps, U8* HWY_RESTRICT codes,
                                         U8* HWY_RESTRICT scales) {
  const Range r = range<32>(x);
  const float min = first_zero<32>(x, r.min);
  const float max = first_zero<32>(x, r.max);
  const float d = (max - min) / steps;
  const float id = inverse(d);
  store_f16(d, scales);
  store_f16(min, scales + 2);
  if (id == 0) return;  // x - min may be infinite
  const hn::Rebind<U8, Floats> bytes;
  for (std::size_t i = 0; i < 32; i += hn::Lanes(Floats())) {
    const VF v = hn::Add(hn::Mul(hn::Sub(load(x + i), set(min)), set(id)), set(0.5F));
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(Integers(), v)), bytes, codes + i);
  }
}

struct Q4_1 {
  static constexpr DType kType = DType::q4_1;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[32] = {};
    encode_distance(x, 15, codes, dst);
    at_most<32>(15, codes);
    pack_nibbles(codes, dst + 4);
  }
};

struct Q5_1 {
  static constexpr DType kType = DType::q5_1;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[32] = {};
    encode_distance(x, 31, codes, dst);
    pack_fifth_bits(codes, dst + 4);
    pack_nibbles(codes, dst + 8);
  }
};

struct Q8_0 {
  static constexpr DType kType = DType::q8_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    const float d = largest_magnitude<32>(x) / 127;
    store_f16(d, dst);
    round_away<32>(x, inverse(d), reinterpret_cast<I8*>(dst + 2));
  }
};

struct Q1_0 {
  static constexpr DType kType = DType::q1_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    float sum = 0;  // ggml sums in this order
    for (std::size_t i = 0; i < 128; ++i) sum += std::fabs(x[i]);
    store_f16(sum / 128, dst);
    for (std::size_t k = 0; k < 16; ++k) {
      unsigned bits = 0;
      for (std::size_t j = 0; j < 8; ++j) bits |= static_cast<unsigned>(x[8 * k + j] >= 0) << j;
      dst[2 + k] = static_cast<U8>(bits);
    }
  }
};

// Writes the codes 0, 1, 2 for the nearest of -d, 0, d. Returns d, the largest magnitude.
template <std::size_t kCount>
HWY_INLINE HWY_ATTR float encode_trits(const float* HWY_RESTRICT x, I8* HWY_RESTRICT codes) {
  const float d = largest_magnitude<kCount>(x);
  round_away<kCount>(x, inverse(d), codes);
  for (std::size_t i = 0; i < kCount; ++i) codes[i] = static_cast<I8>(codes[i] + 1);
  return d;
}

struct Q2_0 {
  static constexpr DType kType = DType::q2_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) I8 codes[64];
    const float d = encode_trits<64>(x, codes);
    if (tiny(d, inverse(d))) std::memset(codes, 0, sizeof codes);
    store_f16(d, dst);
    for (std::size_t k = 0; k < 16; ++k) {
      unsigned bits = 0;
      for (std::size_t s = 0; s < 4; ++s) bits |= static_cast<unsigned>(codes[4 * k + s]) << (2 * s);
      dst[2 + k] = static_cast<U8>(bits);
    }
  }
};

// Packs codes in base 3, most significant digit first, as the smallest fraction of 256 that is large enough.
template <std::size_t kBytes>
HWY_INLINE HWY_ATTR void pack_trits(const I8* HWY_RESTRICT codes, std::size_t digits, U8* HWY_RESTRICT bytes) {
  for (std::size_t m = 0; m < kBytes; ++m) {
    unsigned v = 0;
    for (std::size_t n = 0; n < 5; ++n) v = 3 * v + (n < digits ? static_cast<unsigned>(codes[n * kBytes + m]) : 0);
    bytes[m] = static_cast<U8>((v * 256 + 242) / 243);
  }
}

struct Tq1_0 {
  static constexpr DType kType = DType::tq1_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    store_f16(encode_trits<256>(x, codes), dst + 52);
    pack_trits<32>(codes, 5, dst);
    pack_trits<16>(codes + 160, 5, dst + 32);
    pack_trits<4>(codes + 240, 4, dst + 48);
  }
};

struct Tq2_0 {
  static constexpr DType kType = DType::tq2_0;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) I8 codes[256];
    store_f16(encode_trits<256>(x, codes), dst + 64);
    for (std::size_t h = 0; h < 2; ++h) {
      const I8* c = codes + 128 * h;
      for (std::size_t m = 0; m < 32; ++m) {
        dst[32 * h + m] = static_cast<U8>(c[m] | c[32 + m] << 2 | c[64 + m] << 4 | c[96 + m] << 6);
      }
    }
  }
};

// Writes the codes of the nearest multiples e2m1_values * `d`. If two are equally near, the first is taken.
template <std::size_t kCount>
HWY_INLINE HWY_ATTR void encode_e2m1(const float* HWY_RESTRICT x, float largest, float d, U8* HWY_RESTRICT codes) {
  if (largest > 24 * d || !std::isfinite(12 * d)) {
    // Far from all numbers of the scale, rounded distances are equal, so this compares them in the order of ggml.
    for (std::size_t i = 0; i < kCount; ++i) {
      unsigned best = 0;
      float distance = std::fabs(x[i]);
      for (unsigned code = 1; code < 16; ++code) {
        const float other = std::fabs(static_cast<float>(e2m1_values[code]) * d - x[i]);
        if (other < distance) {
          best = code;
          distance = other;
        }
      }
      codes[i] = static_cast<U8>(best);
    }
    return;
  }
  // Otherwise the relevant distances are exact, and the midpoints between neighbors decide. For a number at a midpoint,
  // the neighbor of smaller magnitude has the smaller code.
  constexpr float middles[7] = {0.5F, 1.5F, 2.5F, 3.5F, 5, 7, 10};
  const hn::Rebind<U8, Floats> bytes;
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(Floats())) {
    const VF v = load(x + i);
    const VF a = hn::Abs(v);
    auto code = hn::Zero(Integers());
    for (const float middle : middles) {
      code = hn::Sub(code, hn::VecFromMask(Integers(), hn::RebindMask(Integers(), hn::Gt(a, set(middle * d)))));
    }
    const auto negative = hn::RebindMask(Integers(), hn::Lt(v, hn::Zero(Floats())));
    const auto some = hn::Gt(code, hn::Zero(Integers()));
    code = hn::Add(code, hn::IfThenElseZero(hn::And(negative, some), hn::Set(Integers(), 8)));
    hn::StoreU(hn::DemoteTo(bytes, code), bytes, codes + i);
  }
}

// Returns floor(log2(x)) as computed in f32: just below a power of two, the logarithm rounds up to an integer.
inline int floor_log2(float x) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);  // in [1/2, 1); log2(x) is a little less than `exponent`
  const int distance = exponent <= 0 ? -exponent : exponent - 1;
  if (distance == 0) return exponent - 1;
  // Half a unit in the last place of an f32 just below `exponent`, in units of 2^-24.
  const double half_place = static_cast<double>(std::bit_floor(static_cast<unsigned>(distance)));
  const double below = (1 - static_cast<double>(fraction)) * 0x1p24 * 0x1.71547652B82FEp+0;
  return below < half_place ? exponent : exponent - 1;
}

struct Mxfp4 {
  static constexpr DType kType = DType::mxfp4;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[32];
    const float largest = largest_magnitude<32>(x);
    const int e = largest > 0 ? floor_log2(largest) - 2 + 127 : 0;
    dst[0] = static_cast<U8>(e < 0 ? 0 : e);
    encode_e2m1<32>(x, largest, std::bit_cast<float>(half_e8m0_bits(dst[0])), codes);
    pack_nibbles(codes, dst + 1);
  }
};

// Rounds a scale to unsigned E4M3: to nearest, ties up. Uses the largest code (448) from 256 on.
inline U8 ue4m3(float x) {
  if (!(x > 0)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23) - 127 + 7;
  if (exponent <= 0) {
    float fraction = x * 512;
    fraction += 0.5F;
    return static_cast<U8>(fraction < 7 ? fraction : 7);
  }
  const std::uint32_t rounded = static_cast<std::uint32_t>(exponent) << 4 | (bits >> 19 & 15);
  const std::uint32_t code = (rounded + 1) >> 1;
  return static_cast<U8>(code < 0x78 ? code : 0x7E);
}

struct Nvfp4 {
  static constexpr DType kType = DType::nvfp4;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    for (std::size_t s = 0; s < 4; ++s) {
      alignas(64) U8 codes[16];
      const float largest = largest_magnitude<16>(x + 16 * s);
      dst[s] = ue4m3(largest / 6);
      encode_e2m1<16>(x + 16 * s, largest, half_ue4m3(dst[s]), codes);
      for (std::size_t j = 0; j < 8; ++j) dst[4 + 8 * s + j] = static_cast<U8>(codes[j] | codes[j + 8] << 4);
    }
  }
};

template <class Type>
HWY_ATTR void encode(const float* HWY_RESTRICT src, std::byte* dst, std::size_t blocks) {
  constexpr BlockSize size = block_size(Type::kType);
  auto* bytes = reinterpret_cast<U8*>(dst);
  for (std::size_t i = 0; i < blocks; ++i) Type::encode(src + i * size.elements, bytes + i * size.bytes);
}

template <class... Types>
BlockEncoder find(DType d) {
  BlockEncoder found = nullptr;
  ((Types::kType == d ? static_cast<void>(found = &encode<Types>) : void()), ...);
  return found;
}

BlockEncoder encoder(DType d) { return find<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Tq1_0, Tq2_0, Mxfp4, Nvfp4, Q1_0, Q2_0>(d); }

HWY_ATTR bool not_finite(const float* src, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, src + i, sizeof bits);
    bits &= 0x7FFFFFFFu;
    largest = largest < bits ? bits : largest;
  }
  return largest >= 0x7F800000u;
}

}  // namespace stele::inline v0::precision_detail::encoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0::precision_detail {

namespace encoding {
HWY_EXPORT(encoder);
HWY_EXPORT(not_finite);
static BlockEncoder best(DType d) noexcept { return HWY_DYNAMIC_DISPATCH(encoder)(d); }
static bool any_not_finite(const float* src, std::size_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(not_finite)(src, count);
}
}  // namespace encoding

BlockEncoder block_encoder(DType d) noexcept {
  const BlockEncoder simple = encoding::best(d);
  return simple != nullptr ? simple : fitting_encoder(d);
}

bool any_not_finite(const float* src, std::size_t count) noexcept { return encoding::any_not_finite(src, count); }

}  // namespace stele::inline v0::precision_detail

#endif  // HWY_ONCE
