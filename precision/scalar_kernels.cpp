// Scalar kernels: the 8-bit floats, and all conversions on machines without usable vectors.
#include <array>
#include <cstring>

#include "kernels.hpp"
#include "reference.hpp"

namespace stele::inline v0::precision_detail {
namespace {

template <class From, class To, auto convert_bits>
bool each(const std::byte* src, std::byte* dst, std::size_t count) {
  bool overflow = false;
  for (std::size_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, src + i * sizeof in, sizeof in);
    const To out = convert_bits(in, overflow);
    std::memcpy(dst + i * sizeof out, &out, sizeof out);
  }
  return overflow;
}

std::uint16_t f16_from_f32(std::uint32_t u, bool& overflow) {
  const std::uint16_t r = detail::f16_from_f32_bits(u);
  overflow |= (r & 0x7FFFu) == 0x7C00u && (u & 0x7FFFFFFFu) < 0x7F800000u;
  return r;
}

std::uint16_t bf16_from_f32(std::uint32_t u, bool& overflow) {
  const std::uint16_t r = detail::bf16_from_f32_bits(u);
  overflow |= (r & 0x7FFFu) == 0x7F80u && (u & 0x7FFFFFFFu) < 0x7F800000u;
  return r;
}

std::uint32_t f32_from_f16(std::uint16_t h, bool&) { return detail::f32_from_f16_bits(h); }
std::uint32_t f32_from_bf16(std::uint16_t b, bool&) { return detail::f32_from_bf16_bits(b); }

template <DType kFrom, DType kTo, class From, class To>
To recode(From in, bool& overflow) {
  constexpr FloatLayout from = layout_of(kFrom);
  constexpr FloatLayout to = layout_of(kTo);
  const Encoded e = encode_float(to, decode_float(from, in));
  overflow |= e.overflow;
  return static_cast<To>(e.bits);
}

// Rounds to odd: truncates, and sets the last bit if any set bit was lost. A finite number never becomes infinite.
std::uint32_t odd_f32_from_f64(std::uint64_t u, bool&) {
  const std::uint64_t a = u & 0x7FFFFFFFFFFFFFFFu;
  const auto sign = static_cast<std::uint32_t>(u >> 32) & 0x80000000u;
  if (a > 0x7FF0000000000000u) return sign | 0x7FC00000u | (static_cast<std::uint32_t>(a >> 29) & 0x3FFFFFu);
  if (a == 0x7FF0000000000000u) return sign | 0x7F800000u;
  if (a >= 0x47F0000000000000u) return sign | 0x7F7FFFFFu;
  if (a < 0x3690000000000000u) return sign | (a != 0 ? 1u : 0u);  // below 2^-150
  const bool normal = a >= 0x3810000000000000u;
  const int shift = normal ? 29 : 29 + 897 - static_cast<int>(a >> 52);
  const std::uint64_t m = normal ? a - 0x3800000000000000u : (a & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
  const bool inexact = (m & ((std::uint64_t{1} << shift) - 1)) != 0;
  return sign | static_cast<std::uint32_t>(m >> shift) | (inexact ? 1u : 0u);
}

template <DType kFrom>
constexpr std::array<std::uint32_t, 256> f32_of_all_codes() noexcept {
  std::array<std::uint32_t, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] =
        static_cast<std::uint32_t>(encode_float(layout_of(DType::f32), decode_float(layout_of(kFrom), code)).bits);
  }
  return table;
}

template <DType kFrom>
std::uint32_t look_up(std::uint8_t code, bool&) {
  static constexpr auto kTable = f32_of_all_codes<kFrom>();
  return kTable[code];
}

template <DType kEight>
Kernel pick(DType other, bool widen) noexcept {
  if (widen) return &each<std::uint8_t, std::uint32_t, &look_up<kEight>>;
  if (other == DType::f64) {
    return &each<std::uint64_t, std::uint8_t, &recode<DType::f64, kEight, std::uint64_t, std::uint8_t>>;
  }
  return &each<std::uint32_t, std::uint8_t, &recode<DType::f32, kEight, std::uint32_t, std::uint8_t>>;
}

Kernel pick(DType eight, DType other, bool widen) noexcept {
  switch (eight) {
    case DType::f8_e4m3fn:
      return pick<DType::f8_e4m3fn>(other, widen);
    case DType::f8_e5m2:
      return pick<DType::f8_e5m2>(other, widen);
    case DType::f8_e4m3fnuz:
      return pick<DType::f8_e4m3fnuz>(other, widen);
    case DType::f8_e5m2fnuz:
      return pick<DType::f8_e5m2fnuz>(other, widen);
    case DType::f8_e8m0:
      return pick<DType::f8_e8m0>(other, widen);
    default:
      return nullptr;
  }
}

}  // namespace

Kernel from_eight_bits(DType from) noexcept { return pick(from, DType::f32, true); }
Kernel to_eight_bits(DType from, DType to) noexcept { return pick(to, from, false); }

FloatKernels scalar_kernels() noexcept {
  return {&each<std::uint32_t, std::uint16_t, &f16_from_f32>,
          &each<std::uint16_t, std::uint32_t, &f32_from_f16>,
          &each<std::uint32_t, std::uint16_t, &bf16_from_f32>,
          &each<std::uint16_t, std::uint32_t, &f32_from_bf16>,
          &each<std::uint64_t, std::uint32_t, &recode<DType::f64, DType::f32, std::uint64_t, std::uint32_t>>,
          &each<std::uint32_t, std::uint64_t, &recode<DType::f32, DType::f64, std::uint32_t, std::uint64_t>>,
          &each<std::uint64_t, std::uint32_t, &odd_f32_from_f64>};
}

}  // namespace stele::inline v0::precision_detail
