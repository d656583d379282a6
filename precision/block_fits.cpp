// Encoders of blocks whose scales are fitted: of many scales, each encoder takes the one with the least error. Compiled
// once for each SIMD target. The results equal those of ggml's reference functions, built without fused multiply-add,
// bit for bit, so each sum is computed in the order of the elements. To use vectors nevertheless, each lane processes a
// separate run of elements with its own scale: a vector has the elements with equal index of several runs.

#include "block_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "block_fits.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <bit>
#include <cmath>

#include "block_kernels.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::fitting::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using U8 = std::uint8_t;
using Floats = hn::CappedTag<float, 8>;
using Integers = hn::RebindToSigned<Floats>;
using VF = hn::Vec<Floats>;
using MF = hn::Mask<Floats>;

constexpr std::size_t kMaxLanes = 8;
constexpr float kNegligible = 1e-15F;  // ggml encodes a run without larger numbers as zeros

HWY_INLINE HWY_ATTR std::size_t lanes() { return hn::Lanes(Floats()); }
HWY_INLINE HWY_ATTR VF set(float x) { return hn::Set(Floats(), x); }
HWY_INLINE HWY_ATTR VF zero() { return hn::Zero(Floats()); }
HWY_INLINE HWY_ATTR VF load(const float* x) { return hn::LoadU(Floats(), x); }
HWY_INLINE HWY_ATTR void store(VF v, float* at) { hn::StoreU(v, Floats(), at); }
HWY_INLINE HWY_ATTR VF select(MF mask, VF yes, VF no) { return hn::IfThenElse(mask, yes, no); }

// Rounds to the nearest integer, ties to even, with the bits of a sum, as ggml does. The results for NaN and for
// numbers of 2^22 and more also equal those of ggml.
HWY_INLINE HWY_ATTR int nearest(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 12582912.0F);
  return static_cast<int>(bits & 0x7FFFFFu) - 0x400000;
}
HWY_INLINE HWY_ATTR VF nearest(VF x, int min_code, int max_code) {
  const auto bits = hn::BitCast(Integers(), hn::Add(x, set(12582912.0F)));
  const auto n = hn::Sub(hn::And(bits, hn::Set(Integers(), 0x7FFFFF)), hn::Set(Integers(), 0x400000));
  const auto cut = hn::Min(hn::Max(n, hn::Set(Integers(), min_code)), hn::Set(Integers(), max_code));
  return hn::ConvertTo(Floats(), cut);
}

HWY_INLINE HWY_ATTR int clamp(int x, int min_code, int max_code) {
  return x < min_code ? min_code : x > max_code ? max_code : x;
}

// Stores the x86 NaN pattern for every NaN: the sums of numbers above 1e12 overflow, and the sign of inf / inf depends
// on the machine.
HWY_INLINE HWY_ATTR void store_f16(float value, U8* at) {
  const std::uint16_t bits = detail::f16_from_f32_bits(std::bit_cast<std::uint32_t>(value));
  detail::store_le(reinterpret_cast<std::byte*>(at), std::isnan(value) ? std::uint16_t{0xFE00} : bits);
}
// Returns the number that a decoder will read.
HWY_INLINE HWY_ATTR float stored_f16(const U8* at) {
  return std::bit_cast<float>(
      detail::f32_from_f16_bits(detail::load_le<std::uint16_t>(reinterpret_cast<const std::byte*>(at))));
}

// The `kCount` elements of each of several runs, interleaved: the elements with equal index are adjacent.
template <std::size_t kCount>
struct Columns {
  alignas(64) float x[kCount * kMaxLanes];

  HWY_INLINE HWY_ATTR void gather(const float* HWY_RESTRICT src) {
    for (std::size_t lane = 0; lane < lanes(); ++lane) {
      for (std::size_t i = 0; i < kCount; ++i) x[i * lanes() + lane] = src[lane * kCount + i];
    }
  }
  HWY_INLINE HWY_ATTR void scatter(float* HWY_RESTRICT dst) const {
    for (std::size_t lane = 0; lane < lanes(); ++lane) {
      for (std::size_t i = 0; i < kCount; ++i) dst[lane * kCount + i] = x[i * lanes() + lane];
    }
  }
  HWY_INLINE HWY_ATTR VF at(std::size_t i) const { return load(x + i * lanes()); }
  HWY_INLINE HWY_ATTR void put(std::size_t i, VF v) { store(v, x + i * lanes()); }

  // Returns each run's number of largest magnitude, with its sign. If two have equal magnitudes, returns the first.
  // Returns 0 if all are 0.
  HWY_INLINE HWY_ATTR VF extreme() const {
    VF magnitude = zero();
    VF found = zero();
    for (std::size_t i = 0; i < kCount; ++i) {
      const VF a = hn::Abs(at(i));
      const MF larger = hn::Gt(a, magnitude);
      magnitude = select(larger, a, magnitude);
      found = select(larger, at(i), found);
    }
    return found;
  }
};

// ---- Scale and minimum (q2_K, q4_K, q5_K): x = scale * code - offset, codes from 0

struct OffsetFit {
  int greatest;  // the largest code
  float start;   // the trials' factors are (start + kTrialStep * i + greatest) / (max - min), for i = 0 to `trials`
  int trials;
  bool squares;  // true: the error is the weighted sum of squares; false: the weighted sum of magnitudes
};

constexpr float kTrialStep = 0.1F;

// The results for the runs of a block. The codes are nearest(inverse * (x - from)).
template <std::size_t kRuns>
struct OffsetScales {
  float scale[kRuns];
  float offset[kRuns];
  float inverse[kRuns];
  float from[kRuns];
};

template <bool kSquares, std::size_t kCount>
HWY_INLINE HWY_ATTR VF weighted_error(const Columns<kCount>& x, const Columns<kCount>& w, const Columns<kCount>& codes,
                                      VF scale, VF min) {
  VF sum = zero();
  for (std::size_t i = 0; i < kCount; ++i) {
    const VF difference = hn::Sub(hn::Add(hn::Mul(scale, codes.at(i)), min), x.at(i));
    const VF error = kSquares ? hn::Mul(difference, difference) : hn::Abs(difference);
    sum = hn::Add(sum, hn::Mul(w.at(i), error));
  }
  return sum;
}

template <bool kSquares, std::size_t kCount, std::size_t kRuns>
HWY_ATTR void fit_offset(const OffsetFit& fit, const Columns<kCount>& x, const Columns<kCount>& w, std::size_t at,
                         OffsetScales<kRuns>& out) {
  Columns<kCount> codes;
  VF min_x = x.at(0);
  VF max_x = min_x;
  VF sum_w = w.at(0);
  VF sum_x = hn::Mul(sum_w, x.at(0));
  for (std::size_t i = 1; i < kCount; ++i) {
    min_x = select(hn::Lt(x.at(i), min_x), x.at(i), min_x);
    max_x = select(hn::Gt(x.at(i), max_x), x.at(i), max_x);
    sum_w = hn::Add(sum_w, w.at(i));
    sum_x = hn::Add(sum_x, hn::Mul(w.at(i), x.at(i)));
  }
  min_x = select(hn::Gt(min_x, zero()), zero(), min_x);
  const MF constant = hn::Eq(max_x, min_x);

  const auto n = static_cast<float>(fit.greatest);
  VF best_inverse = hn::Div(set(n), hn::Sub(max_x, min_x));
  VF best_from = min_x;
  VF best_scale = hn::Div(set(1), best_inverse);
  VF best_min = min_x;
  for (std::size_t i = 0; i < kCount; ++i) {
    codes.put(i, nearest(hn::Mul(best_inverse, hn::Sub(x.at(i), min_x)), 0, fit.greatest));
  }
  VF best_error = weighted_error<kSquares>(x, w, codes, best_scale, best_min);

  for (int trial = 0; trial <= fit.trials; ++trial) {
    // After a better trial, the following trials count the codes from its minimum.
    const VF from = best_min;
    const VF inverse = hn::Div(set(fit.start + kTrialStep * static_cast<float>(trial) + n), hn::Sub(max_x, from));
    VF sum_l = zero();
    VF sum_ll = zero();
    VF sum_xl = zero();
    for (std::size_t i = 0; i < kCount; ++i) {
      const VF l = nearest(hn::Mul(inverse, hn::Sub(x.at(i), from)), 0, fit.greatest);
      codes.put(i, l);
      const VF wl = hn::Mul(w.at(i), l);
      sum_l = hn::Add(sum_l, wl);
      sum_ll = hn::Add(sum_ll, hn::Mul(wl, l));
      sum_xl = hn::Add(sum_xl, hn::Mul(wl, x.at(i)));
    }
    const VF determinant = hn::Sub(hn::Mul(sum_w, sum_ll), hn::Mul(sum_l, sum_l));
    VF scale = hn::Div(hn::Sub(hn::Mul(sum_w, sum_xl), hn::Mul(sum_x, sum_l)), determinant);
    VF min = hn::Div(hn::Sub(hn::Mul(sum_ll, sum_x), hn::Mul(sum_l, sum_xl)), determinant);
    const MF above = hn::Gt(min, zero());
    scale = select(above, hn::Div(sum_xl, sum_ll), scale);
    min = select(above, zero(), min);
    const VF error = weighted_error<kSquares>(x, w, codes, scale, min);
    const MF better = hn::And(hn::Gt(determinant, zero()), hn::Lt(error, best_error));
    best_error = select(better, error, best_error);
    best_scale = select(better, scale, best_scale);
    best_min = select(better, min, best_min);
    best_inverse = select(better, inverse, best_inverse);
    best_from = select(better, from, best_from);
  }
  best_min = select(constant, min_x, best_min);
  store(select(constant, zero(), best_scale), out.scale + at);
  store(hn::Neg(best_min), out.offset + at);
  store(select(constant, zero(), best_inverse), out.inverse + at);
  store(select(constant, min_x, best_from), out.from + at);
}

// Fits all runs of a block. `weigh` computes the weights of a group of runs.
template <bool kSquares, std::size_t kCount, std::size_t kRuns, class Weigh>
HWY_INLINE HWY_ATTR void fit_offsets(const OffsetFit& fit, const float* HWY_RESTRICT src, OffsetScales<kRuns>& out,
                                     Weigh weigh) {
  Columns<kCount> x;
  Columns<kCount> w;
  for (std::size_t at = 0; at < kRuns; at += lanes()) {
    x.gather(src + at * kCount);
    weigh(x, w);
    fit_offset<kSquares>(fit, x, w, at, out);
  }
}

// Writes the codes of a run for the scales as stored, or the codes of the fit if the stored scale is 0.
template <std::size_t kCount, std::size_t kRuns>
HWY_INLINE HWY_ATTR void offset_codes(const float* HWY_RESTRICT x, float d, float m, const OffsetScales<kRuns>& fit,
                                      std::size_t run, int greatest, U8* HWY_RESTRICT codes) {
  const hn::Rebind<U8, Floats> bytes;
  const bool kept = d == 0;
  for (std::size_t i = 0; i < kCount; i += lanes()) {
    const VF v = kept ? hn::Mul(set(fit.inverse[run]), hn::Sub(load(x + i), set(fit.from[run])))
                      : hn::Div(hn::Add(load(x + i), set(m)), set(d));
    const auto l = hn::ConvertTo(Integers(), nearest(v, 0, greatest));
    hn::StoreU(hn::DemoteTo(bytes, l), bytes, codes + i);
  }
}

// Returns the largest number, or 0 if none is positive.
template <std::size_t kRuns>
HWY_INLINE HWY_ATTR float greatest(const float (&numbers)[kRuns]) {
  float m = 0;
  for (const float x : numbers) m = x > m ? x : m;
  return m;
}

// Packs four 2-bit fields into each byte, from codes that are 32 apart, as the K types do.
HWY_INLINE HWY_ATTR void pack_two_bits(const U8* HWY_RESTRICT codes, U8* HWY_RESTRICT q) {
  for (std::size_t h = 0; h < 2; ++h) {
    const U8* c = codes + 128 * h;
    for (std::size_t l = 0; l < 32; ++l) {
      q[32 * h + l] = static_cast<U8>((c[l] & 3) | (c[l + 32] & 3) << 2 | (c[l + 64] & 3) << 4 | (c[l + 96] & 3) << 6);
    }
  }
}

struct Q2K {
  static constexpr DType kType = DType::q2_k;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    constexpr OffsetFit kFit = {3, -0.5F, 15, false};
    OffsetScales<16> fit;
    fit_offsets<kFit.squares, 16>(kFit, x, fit, [](const Columns<16>& v, Columns<16>& w) HWY_ATTR {
      for (std::size_t i = 0; i < 16; ++i) w.put(i, hn::Abs(v.at(i)));
    });
    const float scale = greatest(fit.scale);
    const float offset = greatest(fit.offset);
    const float inverse_scale = scale > 0 ? 15 / scale : 0;
    const float inverse_offset = offset > 0 ? 15 / offset : 0;
    for (std::size_t k = 0; k < 16; ++k) {
      const int s = scale > 0 ? nearest(inverse_scale * fit.scale[k]) : 0;
      const int m = offset > 0 ? nearest(inverse_offset * fit.offset[k]) : 0;
      dst[k] = static_cast<U8>((s & 255) | m << 4);
    }
    store_f16(scale > 0 ? scale / 15 : 0, dst + 80);
    store_f16(offset > 0 ? offset / 15 : 0, dst + 82);
    const float d = stored_f16(dst + 80);
    const float dmin = stored_f16(dst + 82);
    alignas(64) U8 codes[256];
    for (std::size_t k = 0; k < 16; ++k) {
      const float m = dmin * static_cast<float>(dst[k] >> 4);
      offset_codes<16>(x + 16 * k, d * static_cast<float>(dst[k] & 15), m, fit, k, kFit.greatest, codes + 16 * k);
    }
    pack_two_bits(codes, dst + 16);
  }
};

// Fits the scales of q4_K and q5_K, stores them in 16 bytes, and returns the codes.
template <int kGreatest>
HWY_INLINE HWY_ATTR void encode_six_bit_scales(const OffsetFit& kind, const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst,
                                               U8* HWY_RESTRICT codes) {
  OffsetScales<8> fit;
  fit_offsets<true, 32>(kind, x, fit, [](const Columns<32>& v, Columns<32>& w) HWY_ATTR {
    VF sum = zero();
    for (std::size_t i = 0; i < 32; ++i) sum = hn::Add(sum, hn::Mul(v.at(i), v.at(i)));
    const VF mean = hn::Sqrt(hn::Div(sum, set(32)));
    for (std::size_t i = 0; i < 32; ++i) w.put(i, hn::Add(mean, hn::Abs(v.at(i))));
  });
  const float scale = greatest(fit.scale);
  const float offset = greatest(fit.offset);
  const float inverse_scale = scale > 0 ? 63 / scale : 0;
  const float inverse_offset = offset > 0 ? 63 / offset : 0;
  unsigned s[8];
  unsigned m[8];
  for (std::size_t k = 0; k < 8; ++k) {
    // As in ggml, a negative scale wraps around to a byte before it is limited.
    s[k] = static_cast<U8>(nearest(inverse_scale * fit.scale[k]));
    m[k] = static_cast<U8>(nearest(inverse_offset * fit.offset[k]));
    s[k] = s[k] < 63 ? s[k] : 63;
    m[k] = m[k] < 63 ? m[k] : 63;
  }
  store_f16(scale / 63, dst);
  store_f16(offset / 63, dst + 2);
  U8* packed = dst + 4;
  for (std::size_t k = 0; k < 4; ++k) {
    packed[k] = static_cast<U8>(s[k] | s[k + 4] >> 4 << 6);
    packed[k + 4] = static_cast<U8>(m[k] | m[k + 4] >> 4 << 6);
    packed[k + 8] = static_cast<U8>((s[k + 4] & 15) | (m[k + 4] & 15) << 4);
  }
  const float d = stored_f16(dst);
  const float dmin = stored_f16(dst + 2);
  for (std::size_t k = 0; k < 8; ++k) {
    offset_codes<32>(x + 32 * k, d * static_cast<float>(s[k]), dmin * static_cast<float>(m[k]), fit, k, kGreatest,
                     codes + 32 * k);
  }
}

// Packs the low 4 bits of codes. Runs 2k and 2k + 1 of `kRun` codes share the low and high nibbles of the same bytes.
template <std::size_t kRun, std::size_t kCount>
HWY_INLINE HWY_ATTR void pack_nibbles(const U8* HWY_RESTRICT codes, U8* HWY_RESTRICT q) {
  for (std::size_t at = 0; at < kCount; at += 2 * kRun) {
    for (std::size_t l = 0; l < kRun; ++l) {
      q[at / 2 + l] = static_cast<U8>((codes[at + l] & 15) | codes[at + kRun + l] << 4);
    }
  }
}

struct Q4K {
  static constexpr DType kType = DType::q4_k;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[256];
    encode_six_bit_scales<15>({15, -1, 20, true}, x, dst, codes);
    pack_nibbles<32, 256>(codes, dst + 16);
  }
};

struct Q5K {
  static constexpr DType kType = DType::q5_k;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    alignas(64) U8 codes[256];
    encode_six_bit_scales<31>({31, -0.5F, 15, true}, x, dst, codes);
    for (std::size_t l = 0; l < 32; ++l) {
      unsigned high = 0;
      for (std::size_t k = 0; k < 8; ++k) high |= static_cast<unsigned>(codes[32 * k + l] >> 4) << k;
      dst[16 + l] = static_cast<U8>(high);
    }
    pack_nibbles<32, 256>(codes, dst + 48);
  }
};

// ---- Signed scale (q3_K, q6_K): x = scale * code, codes from -n to n - 1

// The sums of a fit x = scale * l with weights x^2.
struct Sums {
  VF xl;
  VF ll;
};

// Rounds `inverse` * x to codes and computes the sums.
template <std::size_t kCount>
HWY_INLINE HWY_ATTR Sums sums_of(const Columns<kCount>& x, VF inverse, int n) {
  Sums sums{zero(), zero()};
  for (std::size_t i = 0; i < kCount; ++i) {
    const VF l = nearest(hn::Mul(inverse, x.at(i)), -n, n - 1);
    const VF w = hn::Mul(x.at(i), x.at(i));
    sums.xl = hn::Add(sums.xl, hn::Mul(hn::Mul(w, x.at(i)), l));
    sums.ll = hn::Add(sums.ll, hn::Mul(hn::Mul(w, l), l));
  }
  return sums;
}

// Changes codes one by one while the fit improves. Writes the codes plus `n`.
template <std::size_t kCount>
HWY_ATTR VF fit_by_moves(const Columns<kCount>& x, int n, Columns<kCount>& codes) {
  const VF extreme = x.extreme();
  const MF negligible = hn::Lt(hn::Abs(extreme), set(kNegligible));
  const VF inverse = hn::Div(set(static_cast<float>(-n)), extreme);
  for (std::size_t i = 0; i < kCount; ++i) codes.put(i, nearest(hn::Mul(inverse, x.at(i)), -n, n - 1));
  Sums best = sums_of(x, inverse, n);
  for (int sweep = 0; sweep < 5; ++sweep) {
    MF moved = hn::Lt(zero(), zero());
    for (std::size_t i = 0; i < kCount; ++i) {
      const VF l = codes.at(i);
      const VF w = hn::Mul(x.at(i), x.at(i));
      const VF wx = hn::Mul(w, x.at(i));
      const VF other_xl = hn::Sub(best.xl, hn::Mul(wx, l));
      const VF other_ll = hn::Sub(best.ll, hn::Mul(hn::Mul(w, l), l));
      const VF moved_l = nearest(hn::Div(hn::Mul(x.at(i), other_ll), other_xl), -n, n - 1);
      const VF xl = hn::Add(other_xl, hn::Mul(wx, moved_l));
      const VF ll = hn::Add(other_ll, hn::Mul(hn::Mul(w, moved_l), moved_l));
      MF better = hn::Gt(hn::Mul(hn::Mul(xl, xl), best.ll), hn::Mul(hn::Mul(best.xl, best.xl), ll));
      better = hn::And(better, hn::And(hn::Gt(ll, zero()), hn::Gt(other_xl, zero())));
      better = hn::And(better, hn::Ne(moved_l, l));
      codes.put(i, select(better, moved_l, l));
      best.xl = select(better, xl, best.xl);
      best.ll = select(better, ll, best.ll);
      moved = hn::Or(moved, better);
    }
    if (hn::AllFalse(Floats(), moved)) break;
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    codes.put(i, select(negligible, zero(), hn::Add(codes.at(i), set(static_cast<float>(n)))));
  }
  const VF scale = select(hn::Gt(best.ll, zero()), hn::Div(best.xl, best.ll), zero());
  return select(negligible, zero(), scale);
}

struct Q3K {
  static constexpr DType kType = DType::q3_k;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    Columns<16> columns;
    Columns<16> fit;
    float scales[16];
    float fitted[256];
    for (std::size_t k = 0; k < 16; k += lanes()) {
      columns.gather(x + 16 * k);
      store(fit_by_moves(columns, 4, fit), scales + k);
      fit.scatter(fitted + 16 * k);
    }
    float largest = 0;
    for (const float s : scales) largest = std::fabs(s) > std::fabs(largest) ? s : largest;
    U8* packed = dst + 96;
    unsigned sc[16] = {};
    if (largest != 0) {
      const float inverse = -32 / largest;
      for (std::size_t k = 0; k < 16; ++k) {
        sc[k] = static_cast<unsigned>(clamp(nearest(inverse * scales[k]), -32, 31) + 32);
      }
      store_f16(1 / inverse, dst + 108);
    } else {
      store_f16(0, dst + 108);
    }
    for (std::size_t k = 0; k < 8; ++k) packed[k] = static_cast<U8>((sc[k] & 15) | (sc[k + 8] & 15) << 4);
    for (std::size_t k = 0; k < 4; ++k) {
      packed[8 + k] = static_cast<U8>(sc[k] >> 4 | sc[k + 4] >> 4 << 2 | sc[k + 8] >> 4 << 4 | sc[k + 12] >> 4 << 6);
    }
    const float stored = stored_f16(dst + 108);
    alignas(64) U8 codes[256];
    const hn::Rebind<U8, Floats> bytes;
    for (std::size_t k = 0; k < 16; ++k) {
      const float d = stored * static_cast<float>(static_cast<int>(sc[k]) - 32);
      for (std::size_t i = 16 * k; i < 16 * k + 16; i += lanes()) {
        const VF l = d == 0 ? load(fitted + i) : hn::Add(nearest(hn::Div(load(x + i), set(d)), -4, 3), set(4));
        hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(Integers(), l)), bytes, codes + i);
      }
    }
    for (std::size_t l = 0; l < 32; ++l) {
      unsigned high = 0;
      for (std::size_t k = 0; k < 8; ++k) high |= static_cast<unsigned>(codes[32 * k + l] >> 2) << k;
      dst[l] = static_cast<U8>(high);
    }
    pack_two_bits(codes, dst + 32);
  }
};

// Tries scales near the scale that gives the extreme number the code -n. Returns the best scale and sets `inverse` to
// the factor that gives the codes.
template <std::size_t kCount>
HWY_ATTR VF fit_by_trials(const Columns<kCount>& x, int n, VF& inverse) {
  const VF extreme = x.extreme();
  const MF negligible = hn::Lt(hn::Abs(extreme), set(kNegligible));
  const auto extreme_code = static_cast<float>(n);
  inverse = hn::Div(set(-extreme_code), extreme);
  const Sums first = sums_of(x, inverse, n);
  VF scale = select(hn::Ne(first.ll, zero()), hn::Div(first.xl, first.ll), zero());
  VF best = hn::Mul(scale, first.xl);
  for (int trial = -9; trial <= 9; ++trial) {
    if (trial == 0) continue;
    const VF other = hn::Div(set(-(extreme_code + 0.1F * static_cast<float>(trial))), extreme);
    const Sums sums = sums_of(x, other, n);
    const MF better = hn::And(hn::Gt(sums.ll, zero()), hn::Gt(hn::Mul(sums.xl, sums.xl), hn::Mul(best, sums.ll)));
    const VF improved = hn::Div(sums.xl, sums.ll);
    scale = select(better, improved, scale);
    best = select(better, hn::Mul(improved, sums.xl), best);
    inverse = select(better, other, inverse);
  }
  inverse = select(negligible, zero(), inverse);
  return select(negligible, zero(), scale);
}

struct Q6K {
  static constexpr DType kType = DType::q6_k;
  static HWY_INLINE HWY_ATTR void encode(const float* HWY_RESTRICT x, U8* HWY_RESTRICT dst) {
    Columns<16> columns;
    float scales[16];
    float inverses[16];
    for (std::size_t k = 0; k < 16; k += lanes()) {
      columns.gather(x + 16 * k);
      VF inverse;
      store(fit_by_trials(columns, 32, inverse), scales + k);
      store(inverse, inverses + k);
    }
    float largest = 0;
    for (const float s : scales) largest = std::fabs(s) > std::fabs(largest) ? s : largest;
    if (std::fabs(largest) < kNegligible) {
      for (std::size_t i = 0; i < 210; ++i) dst[i] = 0;
      return;
    }
    const float factor = -128 / largest;
    int sc[16];
    for (std::size_t k = 0; k < 16; ++k) {
      const int s = nearest(factor * scales[k]);
      sc[k] = static_cast<std::int8_t>(s < 127 ? s : 127);
      dst[192 + k] = static_cast<U8>(sc[k]);
    }
    store_f16(1 / factor, dst + 208);
    const float stored = stored_f16(dst + 208);
    alignas(64) U8 codes[256];
    const hn::Rebind<U8, Floats> bytes;
    for (std::size_t k = 0; k < 16; ++k) {
      const float d = stored * static_cast<float>(sc[k]);
      // All codes of a run without numbers are 0; 32 is added to the codes of other runs.
      const float zero_code = d == 0 && inverses[k] == 0 ? 0 : 32;
      for (std::size_t i = 16 * k; i < 16 * k + 16; i += lanes()) {
        const VF v = d == 0 ? hn::Mul(set(inverses[k]), load(x + i)) : hn::Div(load(x + i), set(d));
        const VF l = hn::Add(nearest(v, -32, 31), set(zero_code));
        hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(Integers(), l)), bytes, codes + i);
      }
    }
    for (std::size_t h = 0; h < 2; ++h) {
      const U8* c = codes + 128 * h;
      pack_nibbles<64, 128>(c, dst + 64 * h);
      for (std::size_t l = 0; l < 32; ++l) {
        dst[128 + 32 * h + l] =
            static_cast<U8>(c[l] >> 4 | c[l + 32] >> 4 << 2 | c[l + 64] >> 4 << 4 | c[l + 96] >> 4 << 6);
      }
    }
  }
};

// ---- iq4_nl: codes for 16 numbers. Each lane processes a block.

struct Iq4Table {
  float middles[15];  // midpoints between neighbors
  float steps[15];    // differences between neighbors
};
constexpr Iq4Table iq4_table() {
  Iq4Table t{};
  for (std::size_t k = 0; k < 15; ++k) {
    t.middles[k] = 0.5F * static_cast<float>(iq4_values[k] + iq4_values[k + 1]);
    t.steps[k] = static_cast<float>(iq4_values[k + 1] - iq4_values[k]);
  }
  return t;
}
constexpr Iq4Table kIq4 = iq4_table();

// Returns the nearest number of the table. If two are equally near, returns the larger. Returns the last number for
// NaN.
HWY_INLINE HWY_ATTR VF nearest_of_table(VF v) {
  VF q = set(iq4_values[0]);
  for (std::size_t k = 0; k < 15; ++k) {
    q = hn::Add(q, hn::IfThenZeroElse(hn::Lt(v, set(kIq4.middles[k])), set(kIq4.steps[k])));
  }
  return q;
}

// Writes the codes of the table's numbers that are nearest to `factor` * x.
HWY_INLINE HWY_ATTR void table_codes(const float* HWY_RESTRICT x, float factor, U8* HWY_RESTRICT codes) {
  const hn::Rebind<U8, Floats> bytes;
  for (std::size_t i = 0; i < 32; i += lanes()) {
    const VF v = hn::Mul(set(factor), load(x + i));
    VF code = zero();
    for (const float middle : kIq4.middles) {
      code = hn::Add(code, hn::IfThenZeroElse(hn::Lt(v, set(middle)), set(1)));
    }
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(Integers(), code)), bytes, codes + i);
  }
}

HWY_INLINE HWY_ATTR Sums table_sums(const Columns<32>& x, VF inverse) {
  Sums sums{zero(), zero()};
  for (std::size_t i = 0; i < 32; ++i) {
    const VF q = nearest_of_table(hn::Mul(inverse, x.at(i)));
    const VF wq = hn::Mul(hn::Mul(x.at(i), x.at(i)), q);
    sums.xl = hn::Add(sums.xl, hn::Mul(wq, x.at(i)));
    sums.ll = hn::Add(sums.ll, hn::Mul(wq, q));
  }
  return sums;
}

// Encodes up to as many blocks as there are lanes.
HWY_ATTR void encode_iq4_nl_group(const float* HWY_RESTRICT src, U8* HWY_RESTRICT dst, std::size_t blocks) {
  Columns<32> x;
  x.gather(src);
  const VF extreme = x.extreme();
  VF inverse = hn::Div(set(1), hn::Div(hn::Neg(extreme), set(-127)));
  const Sums first = table_sums(x, inverse);
  VF d = select(hn::Gt(first.ll, zero()), hn::Div(first.xl, first.ll), zero());
  VF best = hn::Mul(d, first.xl);
  for (int trial = -7; trial <= 7; ++trial) {
    inverse = hn::Div(set(static_cast<float>(trial - 127)), extreme);
    const Sums sums = table_sums(x, inverse);
    const MF better = hn::And(hn::Gt(sums.ll, zero()), hn::Gt(hn::Mul(sums.xl, sums.xl), hn::Mul(best, sums.ll)));
    const VF improved = hn::Div(sums.xl, sums.ll);
    d = select(better, improved, d);
    best = select(better, hn::Mul(improved, sums.xl), best);
  }
  d = select(hn::Lt(hn::Abs(extreme), set(kNegligible)), zero(), d);
  float scales[kMaxLanes];
  store(d, scales);
  for (std::size_t lane = 0; lane < blocks; ++lane) {
    const float scale = scales[lane];
    const float factor = scale != 0 ? 1 / scale : 0;
    alignas(64) U8 codes[32];
    table_codes(src + 32 * lane, factor, codes);
    store_f16(scale, dst + 18 * lane);
    pack_nibbles<16, 32>(codes, dst + 18 * lane + 2);
  }
}

HWY_ATTR void encode_iq4_nl(const float* HWY_RESTRICT src, std::byte* dst, std::size_t blocks) {
  auto* bytes = reinterpret_cast<U8*>(dst);
  std::size_t i = 0;
  for (; i + lanes() <= blocks; i += lanes()) encode_iq4_nl_group(src + 32 * i, bytes + 18 * i, lanes());
  if (i < blocks) {
    float rest[32 * kMaxLanes] = {};
    for (std::size_t k = 0; k < 32 * (blocks - i); ++k) rest[k] = src[32 * i + k];
    encode_iq4_nl_group(rest, bytes + 18 * i, blocks - i);
  }
}

template <class Type>
HWY_ATTR void encode(const float* HWY_RESTRICT src, std::byte* dst, std::size_t blocks) {
  constexpr BlockSize size = block_size(Type::kType);
  auto* bytes = reinterpret_cast<U8*>(dst);
  for (std::size_t i = 0; i < blocks; ++i) Type::encode(src + i * size.elements, bytes + i * size.bytes);
}

BlockEncoder fits(DType d) {
  switch (d) {
    case DType::q2_k:
      return &encode<Q2K>;
    case DType::q3_k:
      return &encode<Q3K>;
    case DType::q4_k:
      return &encode<Q4K>;
    case DType::q5_k:
      return &encode<Q5K>;
    case DType::q6_k:
      return &encode<Q6K>;
    case DType::iq4_nl:
      return &encode_iq4_nl;
    default:
      return nullptr;
  }
}

}  // namespace stele::inline v0::precision_detail::fitting::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0::precision_detail {

namespace fitting {
HWY_EXPORT(fits);
static BlockEncoder best(DType d) noexcept { return HWY_DYNAMIC_DISPATCH(fits)(d); }
}  // namespace fitting

BlockEncoder fitting_encoder(DType d) noexcept { return fitting::best(d); }

}  // namespace stele::inline v0::precision_detail

#endif  // HWY_ONCE
