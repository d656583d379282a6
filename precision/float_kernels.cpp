// Float kernels, compiled once for each SIMD target. The results equal those of the scalar reference bit for bit, which
// excludes many functions of Highway (1.0.3): its emulated f32 -> f16 rounds differently, its bf16 demotion truncates,
// and Ne(x, x) is not a NaN test. Only x86 from SSSE3 on and 64-bit Arm use vectors. Other machines may lose NaN
// payloads (RISC-V, Wasm) or subnormals (32-bit Arm), so they use the scalar reference. SVE is excluded because it is
// untested.

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "float_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <cstring>

#include "kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::float_targets::HWY_NAMESPACE {

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3) || HWY_ARCH_ARM_A64

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using Bytes = hn::Repartition<std::uint8_t, F32>;
using HalfBytes = hn::Half<Bytes>;
using F64 = hn::Repartition<double, F32>;
using U64 = hn::RebindToUnsigned<F64>;
using HalfF32 = hn::Half<F32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using HalfU16 = hn::Half<U16>;
using VU32 = hn::Vec<U32>;
using VI32 = hn::Vec<I32>;
using VU64 = hn::Vec<U64>;

// Loads and stores access bytes: the arrays may be unaligned and of any type.
HWY_INLINE HWY_ATTR hn::Vec<Bytes> load(const std::byte* p) {
  return hn::LoadU(Bytes(), reinterpret_cast<const std::uint8_t*>(p));
}
HWY_INLINE HWY_ATTR hn::Vec<HalfBytes> load_half(const std::byte* p) {
  return hn::LoadU(HalfBytes(), reinterpret_cast<const std::uint8_t*>(p));
}
template <class V>
HWY_INLINE HWY_ATTR void store(V v, std::byte* p) {
  hn::StoreU(hn::BitCast(Bytes(), v), Bytes(), reinterpret_cast<std::uint8_t*>(p));
}
template <class V>
HWY_INLINE HWY_ATTR void store_half(V v, std::byte* p) {
  hn::StoreU(hn::BitCast(HalfBytes(), v), HalfBytes(), reinterpret_cast<std::uint8_t*>(p));
}

HWY_INLINE HWY_ATTR VU32 bits32(std::uint32_t v) { return hn::Set(U32(), v); }
HWY_INLINE HWY_ATTR VU64 bits64(std::uint64_t v) { return hn::Set(U64(), v); }

// Compares values below 2^31 as signed numbers: only the signed comparison exists on every target.
HWY_INLINE HWY_ATTR hn::Mask<U32> less(VU32 a, VU32 b) {
  return hn::RebindMask(U32(), hn::Lt(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
}

// Sets the quiet bit of each NaN among f32 bits.
HWY_INLINE HWY_ATTR VU32 quiet(VU32 u) {
  const auto nan = less(bits32(0x7F800000u), hn::And(u, bits32(0x7FFFFFFFu)));
  return hn::Or(u, hn::IfThenElseZero(nan, bits32(0x400000u)));
}

// Detects whether a finite f32 of at least `threshold` occurred. After a shift, exactly these values are below a bound
// in signed order, so the minimum of all shifted values suffices.
class Overflow32 {
 public:
  HWY_INLINE HWY_ATTR explicit Overflow32(std::uint32_t threshold)
      : shift_(hn::Set(U32(), 0x80000000u - threshold)),
        min_(hn::Set(I32(), 0x7FFFFFFF)),
        bound_(hn::Set(I32(), static_cast<std::int32_t>(0x80000000u + (0x7F800000u - threshold)))) {}
  HWY_INLINE HWY_ATTR void see(VU32 absolute) { min_ = hn::Min(min_, hn::BitCast(I32(), hn::Add(absolute, shift_))); }
  HWY_INLINE HWY_ATTR bool seen() const { return !hn::AllFalse(I32(), hn::Lt(min_, bound_)); }

 private:
  VU32 shift_;
  VI32 min_;
  VI32 bound_;
};

class Overflow64 {
 public:
  HWY_INLINE HWY_ATTR explicit Overflow64(double threshold)
      : threshold_(hn::Set(F64(), threshold)), seen_(hn::Zero(F64())) {}
  HWY_INLINE HWY_ATTR void see(hn::Vec<F64> v) {
    const auto a = hn::Abs(v);
    const auto infinity = hn::BitCast(F64(), bits64(0x7FF0000000000000u));
    seen_ = hn::Or(seen_, hn::VecFromMask(F64(), hn::And(hn::Ge(a, threshold_), hn::Lt(a, infinity))));
  }
  HWY_INLINE HWY_ATTR bool seen() const {
    return !hn::AllFalse(U64(), hn::Ne(hn::BitCast(U64(), seen_), hn::Zero(U64())));
  }

 private:
  hn::Vec<F64> threshold_;
  hn::Vec<F64> seen_;
};

struct NoOverflow {
  HWY_INLINE HWY_ATTR bool seen() const { return false; }
};

#if !HWY_ARCH_X86 || (HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C))
#define STELE_NATIVE_F16 1
#else
#define STELE_NATIVE_F16 0
// Returns the f16 in the low half of each lane.
HWY_INLINE HWY_ATTR VU32 f16_from_f32(VU32 u, VU32 a) {
  const VU32 odd = hn::And(hn::ShiftRight<13>(a), bits32(1));
  const VU32 rounded = hn::ShiftRight<13>(hn::Add(hn::Sub(a, bits32(0x38000000u - 0xFFFu)), odd));
  const VU32 normal = hn::BitCast(U32(), hn::Min(hn::BitCast(I32(), rounded), hn::Set(I32(), 0x7C00)));
  // The unit in the last place of 0.5f is the smallest subnormal f16, so the addition rounds to it.
  const auto sum = hn::Add(hn::BitCast(F32(), a), hn::Set(F32(), 0.5f));
  const VU32 subnormal = hn::Sub(hn::BitCast(U32(), sum), bits32(0x3F000000u));
  const VU32 nan = hn::Or(hn::And(hn::ShiftRight<13>(a), bits32(0x3FFu)), bits32(0x7E00u));
  VU32 r = hn::IfThenElse(less(a, bits32(0x38800000u)), subnormal, normal);
  r = hn::IfThenElse(less(bits32(0x7F800000u), a), nan, r);
  return hn::Or(r, hn::ShiftRight<16>(hn::Xor(u, a)));
}

// Converts the f16 in the low half of each lane.
HWY_INLINE HWY_ATTR VU32 f32_from_f16(VU32 h) {
  const VU32 a = hn::ShiftLeft<13>(hn::And(h, bits32(0x7FFFu)));
  const VU32 normal = hn::Add(a, bits32(0x38000000u));
  const VU32 special = hn::Add(a, bits32(0x70000000u));
  const auto lifted = hn::BitCast(F32(), hn::Add(a, bits32(0x38800000u)));
  const VU32 subnormal = hn::BitCast(U32(), hn::Sub(lifted, hn::BitCast(F32(), bits32(0x38800000u))));
  VU32 r = hn::IfThenElse(less(a, bits32(0x0F800000u)), normal, quiet(special));
  r = hn::IfThenElse(less(a, bits32(0x00800000u)), subnormal, r);
  return hn::Or(r, hn::ShiftLeft<16>(hn::And(h, bits32(0x8000u))));
}
#endif

struct F32ToF16 {
  static constexpr std::size_t kIn = 4, kOut = 2;
  static HWY_INLINE HWY_ATTR std::size_t step() { return 2 * hn::Lanes(F32()); }
  HWY_ATTR F32ToF16() : overflow(0x477FF000u) {}  // the bits of 65520, the smallest f32 that overflows
  Overflow32 overflow;
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
    const VU32 u0 = hn::BitCast(U32(), load(src));
    const VU32 u1 = hn::BitCast(U32(), load(src + hn::Lanes(Bytes())));
    const VU32 a0 = hn::And(u0, bits32(0x7FFFFFFFu));
    const VU32 a1 = hn::And(u1, bits32(0x7FFFFFFFu));
    overflow.see(a0);
    overflow.see(a1);
#if STELE_NATIVE_F16
    const hn::Rebind<hwy::float16_t, F32> to;
    store_half(hn::DemoteTo(to, hn::BitCast(F32(), u0)), dst);
    store_half(hn::DemoteTo(to, hn::BitCast(F32(), u1)), dst + hn::Lanes(HalfBytes()));
#else
    store(hn::ConcatEven(U16(), hn::BitCast(U16(), f16_from_f32(u1, a1)), hn::BitCast(U16(), f16_from_f32(u0, a0))),
          dst);
#endif
  }
};

struct F16ToF32 {
  static constexpr std::size_t kIn = 2, kOut = 4;
  static HWY_INLINE HWY_ATTR std::size_t step() { return hn::Lanes(F32()); }
  NoOverflow overflow;
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
#if STELE_NATIVE_F16
    const hn::Rebind<hwy::float16_t, F32> from;
    store(hn::PromoteTo(F32(), hn::BitCast(from, load_half(src))), dst);
#else
    store(f32_from_f16(hn::PromoteTo(U32(), hn::BitCast(HalfU16(), load_half(src)))), dst);
#endif
  }
};

struct F32ToBf16 {
  static constexpr std::size_t kIn = 4, kOut = 2;
  static HWY_INLINE HWY_ATTR std::size_t step() { return 2 * hn::Lanes(F32()); }
  HWY_ATTR F32ToBf16() : overflow(0x7F7F8000u) {}
  Overflow32 overflow;
  // Returns the bf16 in the high half of each lane.
  HWY_INLINE HWY_ATTR VU32 round(VU32 u) {
    const VU32 a = hn::And(u, bits32(0x7FFFFFFFu));
    overflow.see(a);
    const VU32 odd = hn::And(hn::ShiftRight<16>(u), bits32(1));
    const VU32 rounded = hn::Add(hn::Add(u, bits32(0x7FFFu)), odd);
    return hn::IfThenElse(less(bits32(0x7F800000u), a), hn::Or(u, bits32(0x400000u)), rounded);
  }
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
    const VU32 r0 = round(hn::BitCast(U32(), load(src)));
    const VU32 r1 = round(hn::BitCast(U32(), load(src + hn::Lanes(Bytes()))));
    store(hn::ConcatOdd(U16(), hn::BitCast(U16(), r1), hn::BitCast(U16(), r0)), dst);
  }
};

struct Bf16ToF32 {
  static constexpr std::size_t kIn = 2, kOut = 4;
  static HWY_INLINE HWY_ATTR std::size_t step() { return hn::Lanes(F32()); }
  NoOverflow overflow;
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
    store(quiet(hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::BitCast(HalfU16(), load_half(src))))), dst);
  }
};

struct F64ToF32 {
  static constexpr std::size_t kIn = 8, kOut = 4;
  static HWY_INLINE HWY_ATTR std::size_t step() { return hn::Lanes(F64()); }
  HWY_ATTR F64ToF32() : overflow(0x1.FFFFFFp+127) {}
  Overflow64 overflow;
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
    const auto v = hn::BitCast(F64(), load(src));
    overflow.see(v);
    store_half(hn::DemoteTo(HalfF32(), v), dst);
  }
};

// Bit 29 of an f64 is the last bit of an f32. The bits below it are folded into it (round to odd), so the demotion is
// exact and the later rounding has a sticky bit. Below 2^-126 an f32 has fewer bits, so such a number is rounded
// directly to a multiple of 2^-133, the smallest subnormal bf16 (f16 has only zeros there).
struct F64ToOddF32 {
  static constexpr std::size_t kIn = 8, kOut = 4;
  static HWY_INLINE HWY_ATTR std::size_t step() { return hn::Lanes(F64()); }
  HWY_ATTR F64ToOddF32() : overflow(0x1p+128) {}
  Overflow64 overflow;
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
    const auto v = hn::BitCast(F64(), load(src));
    overflow.see(v);
    const VU64 u = hn::BitCast(U64(), v);
    const VU64 low = bits64(0x1FFFFFFFu);
    const VU64 odd = hn::AndNot(low, hn::Or(u, hn::Add(hn::And(u, low), low)));
    const auto a = hn::Abs(v);
    const auto lift = hn::Set(F64(), 0x1p-81);
    const auto tiny = hn::CopySign(hn::Sub(hn::Add(a, lift), lift), v);
    const auto r = hn::IfThenElse(hn::Lt(a, hn::Set(F64(), 0x1p-126)), tiny, hn::BitCast(F64(), odd));
    store_half(hn::DemoteTo(HalfF32(), r), dst);
  }
};

struct F32ToF64 {
  static constexpr std::size_t kIn = 4, kOut = 8;
  static HWY_INLINE HWY_ATTR std::size_t step() { return hn::Lanes(F64()); }
  NoOverflow overflow;
  HWY_INLINE HWY_ATTR void apply(const std::byte* src, std::byte* dst) {
    store(hn::PromoteTo(F64(), hn::BitCast(HalfF32(), load_half(src))), dst);
  }
};

// Processes whole steps directly, and the remainder in one step that is padded with zeros.
template <class Op>
HWY_ATTR bool run(const std::byte* src, std::byte* dst, std::size_t count) {
  Op op;
  const std::size_t step = Op::step();
  std::size_t i = 0;
  for (; i + step <= count; i += step) op.apply(src + i * Op::kIn, dst + i * Op::kOut);
  if (i < count) {
    constexpr std::size_t kMost = 2 * HWY_MAX_BYTES;
    alignas(64) std::byte in[kMost] = {};
    alignas(64) std::byte out[kMost];
    std::memcpy(in, src + i * Op::kIn, (count - i) * Op::kIn);
    op.apply(in, out);
    std::memcpy(dst + i * Op::kOut, out, (count - i) * Op::kOut);
  }
  return op.overflow.seen();
}

HWY_ATTR FloatKernels kernels() {
  return {&run<F32ToF16>, &run<F16ToF32>, &run<F32ToBf16>,  &run<Bf16ToF32>,
          &run<F64ToF32>, &run<F32ToF64>, &run<F64ToOddF32>};
}

#undef STELE_NATIVE_F16

#else  // no vectors with the required behaviour

FloatKernels kernels() { return scalar_kernels(); }

#endif

}  // namespace stele::inline v0::precision_detail::float_targets::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0::precision_detail {

namespace float_targets {
HWY_EXPORT(kernels);
static FloatKernels best() noexcept { return HWY_DYNAMIC_DISPATCH(kernels)(); }
}  // namespace float_targets

FloatKernels float_kernels() noexcept { return float_targets::best(); }

#if defined(HWY_COMPILE_ONLY_STATIC) || \
    defined(HWY_COMPILE_ONLY_SCALAR)  // one target, and no part of Highway's library
std::int64_t available_targets() noexcept { return HWY_STATIC_TARGET; }
void force_target(std::int64_t /*target*/) noexcept {}
#else
std::int64_t available_targets() noexcept { return hwy::SupportedTargets() & HWY_TARGETS; }
void force_target(std::int64_t target) noexcept {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();
}
#endif

const char* target_name(std::int64_t target) noexcept { return hwy::TargetName(target); }

}  // namespace stele::inline v0::precision_detail

#endif  // HWY_ONCE
