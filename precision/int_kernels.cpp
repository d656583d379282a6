// Integer kernels: plain loops over blocks of fixed length, which the compiler vectorizes for each target. The loops
// make no comparisons: they collect lost bits with OR, and only a block with a loss is searched. AVX-512 is excluded
// because its gain does not justify its compile time.

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "int_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::integer_targets::HWY_NAMESPACE {

constexpr std::size_t kIntBlock = 256;

// Returns true if an element does not fit.
template <class From, class To>
HWY_INLINE HWY_ATTR bool int_block(const std::byte* HWY_RESTRICT src, std::byte* HWY_RESTRICT dst, std::size_t count) {
  using Bits = std::make_unsigned_t<From>;
  // Bits that are 0 in every fitting number: those above the maximum of a narrower type, otherwise the sign.
  constexpr bool narrower = sizeof(To) < sizeof(From);
  constexpr auto limit = static_cast<Bits>(std::numeric_limits<std::conditional_t<narrower, To, From>>::max());
  constexpr bool to_unsigned = std::is_signed_v<From> && std::is_unsigned_v<To>;
  Bits lost = 0;
  for (std::size_t i = 0; i < count; ++i) {
    From v;
    std::memcpy(&v, src + i * sizeof v, sizeof v);
    const To t = static_cast<To>(v);
    if constexpr (narrower && std::is_signed_v<From> && std::is_signed_v<To>) {
      lost = static_cast<Bits>(lost | static_cast<Bits>(v ^ static_cast<From>(t)));  // 0 if t equals v
    } else if constexpr (narrower || to_unsigned) {
      lost = static_cast<Bits>(lost | (static_cast<Bits>(v) & static_cast<Bits>(~limit)));
    }
    std::memcpy(dst + i * sizeof t, &t, sizeof t);
  }
  return lost != 0;
}

template <class From, class To>
HWY_ATTR bool ints(const std::byte* src, std::byte* dst, std::size_t count) {
  bool bad = false;
  std::size_t i = 0;
  for (; i + kIntBlock <= count; i += kIntBlock) {
    bad |= int_block<From, To>(src + i * sizeof(From), dst + i * sizeof(To), kIntBlock);
  }
  return bad | int_block<From, To>(src + i * sizeof(From), dst + i * sizeof(To), count - i);
}

template <class From, class To>
constexpr Kernel int_pair() noexcept {
  if constexpr (sizeof(From) == sizeof(To)) {
    return nullptr;
  } else {
    return &ints<From, To>;
  }
}

template <class From>
Kernel ints_to(DType to) noexcept {
  switch (to) {
    case DType::i64:
      return int_pair<From, std::int64_t>();
    case DType::i32:
      return int_pair<From, std::int32_t>();
    case DType::i16:
      return int_pair<From, std::int16_t>();
    case DType::i8:
      return int_pair<From, std::int8_t>();
    case DType::u64:
      return int_pair<From, std::uint64_t>();
    case DType::u32:
      return int_pair<From, std::uint32_t>();
    case DType::u16:
      return int_pair<From, std::uint16_t>();
    case DType::u8:
      return int_pair<From, std::uint8_t>();
    default:
      return nullptr;
  }
}

Kernel ints_from(DType from, DType to) {
  switch (from) {
    case DType::i64:
      return ints_to<std::int64_t>(to);
    case DType::i32:
      return ints_to<std::int32_t>(to);
    case DType::i16:
      return ints_to<std::int16_t>(to);
    case DType::i8:
      return ints_to<std::int8_t>(to);
    case DType::u64:
      return ints_to<std::uint64_t>(to);
    case DType::u32:
      return ints_to<std::uint32_t>(to);
    case DType::u16:
      return ints_to<std::uint16_t>(to);
    case DType::u8:
      return ints_to<std::uint8_t>(to);
    default:
      return nullptr;
  }
}

// Returns true if a bit of the mask is set in any element. Reads eight bytes at a time: the mask repeats with the
// element width.
HWY_ATTR bool any_of_mask(const std::byte* src, std::size_t bytes, std::uint64_t mask) {
  std::uint64_t seen = 0;
  const auto look = [&seen, src](std::size_t at, std::size_t n) HWY_ATTR {
    std::uint64_t v = 0;
    std::memcpy(&v, src + at, n);
    seen |= v;
  };
  std::size_t i = 0;
  for (; i + 8 * kIntBlock <= bytes; i += 8 * kIntBlock) {
    for (std::size_t k = 0; k < kIntBlock; ++k) look(i + 8 * k, 8);
  }
  for (; i < bytes; i += 8) look(i, bytes - i < 8 ? bytes - i : 8);
  return (seen & mask) != 0;
}

}  // namespace stele::inline v0::precision_detail::integer_targets::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0::precision_detail {

namespace integer_targets {
HWY_EXPORT(any_of_mask);
HWY_EXPORT(ints_from);
static Kernel best(DType from, DType to) noexcept { return HWY_DYNAMIC_DISPATCH(ints_from)(from, to); }
static bool any_of(const std::byte* src, std::size_t bytes, std::uint64_t mask) noexcept {
  return HWY_DYNAMIC_DISPATCH(any_of_mask)(src, bytes, mask);
}
}  // namespace integer_targets

Kernel int_kernel(DType from, DType to) noexcept { return integer_targets::best(from, to); }

bool any_top_bit(const std::byte* src, std::size_t width, std::size_t count) noexcept {
  const std::size_t top_byte = std::endian::native == std::endian::little ? width - 1 : 0;
  std::byte pattern[8] = {};
  for (std::size_t i = 0; i < 8; i += width) pattern[i + top_byte] = std::byte{0x80};
  std::uint64_t mask = 0;
  std::memcpy(&mask, pattern, 8);
  return integer_targets::any_of(src, width * count, mask);
}

bool any_bad_bool(const std::byte* src, std::size_t count) noexcept {
  return integer_targets::any_of(src, count, 0xFEFEFEFEFEFEFEFEu);
}

}  // namespace stele::inline v0::precision_detail

#endif  // HWY_ONCE
