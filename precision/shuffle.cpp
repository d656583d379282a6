// Byte shuffle: stores the first bytes of all elements, then the second bytes, and so on. Exponents are then adjacent,
// and a general compressor finds their repetitions.

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shuffle.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stele/precision/shuffle.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::shuffling::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Splits into two planes of `count` bytes, at a distance of `apart` bytes.
HWY_ATTR void split2(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count,
                     std::size_t apart) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::Vec<decltype(d)> a, b;
    hn::LoadInterleaved2(d, in + 2 * i, a, b);
    hn::StoreU(a, d, out + i);
    hn::StoreU(b, d, out + apart + i);
  }
  for (; i < count; ++i) {
    out[i] = in[2 * i];
    out[apart + i] = in[2 * i + 1];
  }
}
HWY_ATTR void join2(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count,
                    std::size_t apart) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreInterleaved2(hn::LoadU(d, in + i), hn::LoadU(d, in + apart + i), d, out + 2 * i);
  }
  for (; i < count; ++i) {
    out[2 * i] = in[i];
    out[2 * i + 1] = in[apart + i];
  }
}

// Splits into four planes.
template <class T>
HWY_ATTR void split4(const T* HWY_RESTRICT in, T* HWY_RESTRICT out, std::size_t count, std::size_t apart) {
  const hn::ScalableTag<T> d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::Vec<decltype(d)> a, b, c, e;
    hn::LoadInterleaved4(d, in + 4 * i, a, b, c, e);
    hn::StoreU(a, d, out + i);
    hn::StoreU(b, d, out + apart + i);
    hn::StoreU(c, d, out + 2 * apart + i);
    hn::StoreU(e, d, out + 3 * apart + i);
  }
  for (; i < count; ++i) {
    for (std::size_t k = 0; k < 4; ++k) out[k * apart + i] = in[4 * i + k];
  }
}
template <class T>
HWY_ATTR void join4(const T* HWY_RESTRICT in, T* HWY_RESTRICT out, std::size_t count, std::size_t apart) {
  const hn::ScalableTag<T> d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreInterleaved4(hn::LoadU(d, in + i), hn::LoadU(d, in + apart + i), hn::LoadU(d, in + 2 * apart + i),
                          hn::LoadU(d, in + 3 * apart + i), d, out + 4 * i);
  }
  for (; i < count; ++i) {
    for (std::size_t k = 0; k < 4; ++k) out[4 * i + k] = in[k * apart + i];
  }
}

// Number of 8-byte elements in a block: four planes of 16-bit halves, each of which becomes two planes of bytes.
constexpr std::size_t kBlock = 512;

HWY_ATTR void split8(const std::uint8_t* in, std::uint8_t* out, std::size_t count) {
  alignas(64) std::uint16_t whole[4 * kBlock];
  alignas(64) std::uint16_t planes[4 * kBlock];
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t n = count - i < kBlock ? count - i : kBlock;
    std::memcpy(whole, in + 8 * i, 8 * n);
    split4(whole, planes, n, kBlock);
    for (std::size_t k = 0; k < 4; ++k) {
      split2(reinterpret_cast<const std::uint8_t*>(planes + k * kBlock), out + 2 * k * count + i, n, count);
    }
  }
}
HWY_ATTR void join8(const std::uint8_t* in, std::uint8_t* out, std::size_t count) {
  alignas(64) std::uint16_t whole[4 * kBlock];
  alignas(64) std::uint16_t planes[4 * kBlock];
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t n = count - i < kBlock ? count - i : kBlock;
    for (std::size_t k = 0; k < 4; ++k) {
      join2(in + 2 * k * count + i, reinterpret_cast<std::uint8_t*>(planes + k * kBlock), n, count);
    }
    join4(planes, whole, n, kBlock);
    std::memcpy(out + 8 * i, whole, 8 * n);
  }
}

HWY_ATTR void split(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) {
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  if (width == 2) return split2(in, out, count, count);
  if (width == 4) return split4(in, out, count, count);
  if (width == 8) return split8(in, out, count);
  if (count != 0) std::memcpy(to, from, count * width);
}
HWY_ATTR void join(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) {
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  if (width == 2) return join2(in, out, count, count);
  if (width == 4) return join4(in, out, count, count);
  if (width == 8) return join8(in, out, count);
  if (count != 0) std::memcpy(to, from, count * width);
}

}  // namespace stele::inline v0::precision_detail::shuffling::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0 {
namespace precision_detail::shuffling {

HWY_EXPORT(split);
HWY_EXPORT(join);

// In the namespace of HWY_EXPORT: with a single target, Highway calls its function by a relative name.
static void split_best(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) {
  HWY_DYNAMIC_DISPATCH(split)(from, to, count, width);
}
static void join_best(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) {
  HWY_DYNAMIC_DISPATCH(join)(from, to, count, width);
}

}  // namespace precision_detail::shuffling

void shuffle_bytes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept {
  precision_detail::shuffling::split_best(from, to, count, width);
}
void unshuffle_bytes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept {
  precision_detail::shuffling::join_best(from, to, count, width);
}

}  // namespace stele::inline v0

#endif  // HWY_ONCE
