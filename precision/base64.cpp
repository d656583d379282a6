// Base64. Twelve bytes are encoded as sixteen characters: one vector of 128 bits in each direction, with the method of
// W. Muła and D. Lemire, "Faster Base64 Encoding and Decoding using AVX2 Instructions" (ACM TWEB 12, 2018).

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_AVX3 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base64.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "stele/precision/base64.hpp"

HWY_BEFORE_NAMESPACE();
namespace stele::inline v0::precision_detail::base64_kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using D8 = hn::Full128<std::uint8_t>;
using D16 = hn::Full128<std::uint16_t>;
using D32 = hn::Full128<std::uint32_t>;

// Encodes the `size` bytes in blocks of 12. Returns the number of encoded bytes. Reads 16 bytes for each block of 12.
HWY_ATTR std::size_t encode(const std::uint8_t* HWY_RESTRICT in, std::size_t size, std::uint8_t* HWY_RESTRICT out) {
  const D8 d8;
  const D16 d16;
  const D32 d32;
  // Each group of three bytes a b c becomes b a c b, so that each group of six bits is within one 16-bit half.
  alignas(16) static constexpr std::uint8_t spread[16] = {1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10};
  // Difference between a character and its number (0 … 63), by range: 0 … 51 (two ranges), digits, + and /.
  alignas(16) static constexpr std::uint8_t offsets[16] = {71,  252, 252, 252, 252, 252, 252, 252,
                                                           252, 252, 252, 237, 240, 65,  0,   0};
  const auto order = hn::Load(d8, spread);
  const auto roll = hn::Load(d8, offsets);
  std::size_t i = 0;
  for (; i + 16 <= size; i += 12, out += 16) {
    const auto groups = hn::BitCast(d32, hn::TableLookupBytes(hn::LoadU(d8, in + i), order));
    const auto high = hn::MulHigh(hn::BitCast(d16, hn::And(groups, hn::Set(d32, 0x0fc0fc00))),
                                  hn::BitCast(d16, hn::Set(d32, 0x04000040)));
    const auto low = hn::Mul(hn::BitCast(d16, hn::And(groups, hn::Set(d32, 0x003f03f0))),
                             hn::BitCast(d16, hn::Set(d32, 0x01000010)));
    const auto sextets = hn::BitCast(d8, hn::Or(high, low));
    // The index of the range: 0 for 26 … 51, 1 … 10 for digits, 11 for +, 12 for /, 13 for 0 … 25.
    const auto over = hn::SaturatedSub(sextets, hn::Set(d8, 51));
    const auto first = hn::VecFromMask(d8, hn::Lt(sextets, hn::Set(d8, 26)));
    const auto range = hn::Or(over, hn::And(first, hn::Set(d8, 13)));
    hn::StoreU(hn::Add(sextets, hn::TableLookupBytes(roll, range)), d8, out);
  }
  return i;
}

// Decodes the `size` characters in blocks of 16, up to the first block with an invalid character. Returns the number of
// decoded characters. Writes 16 bytes for each block of 12, so the caller must exclude from `size` a block whose last 4
// bytes do not fit.
HWY_ATTR std::size_t decode(const std::uint8_t* HWY_RESTRICT in, std::size_t size, std::uint8_t* HWY_RESTRICT out) {
  const D8 d8;
  const D16 d16;
  const D32 d32;
  // A character is invalid if the bit sets of its two nibbles intersect.
  alignas(16) static constexpr std::uint8_t of_low[16] = {0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
                                                          0x11, 0x11, 0x13, 0x1a, 0x1b, 0x1b, 0x1b, 0x1a};
  alignas(16) static constexpr std::uint8_t of_high[16] = {0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08,
                                                           0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10};
  // Difference between a number and its character, by the character's high nibble; the slash uses the entry before.
  alignas(16) static constexpr std::uint8_t offsets[16] = {0, 16, 19, 4, 191, 191, 185, 185};
  alignas(16) static constexpr std::uint8_t gathered[16] = {2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, 3, 7, 11, 15};
  const auto low_bits = hn::Load(d8, of_low), high_bits = hn::Load(d8, of_high);
  const auto roll = hn::Load(d8, offsets), order = hn::Load(d8, gathered);
  const auto zero = hn::Zero(d8);
  std::size_t i = 0;
  for (; i + 16 <= size; i += 16, out += 12) {
    const auto text = hn::LoadU(d8, in + i);
    const auto high = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, text))), hn::Set(d8, 15));
    const auto low = hn::And(text, hn::Set(d8, 15));
    const auto met = hn::And(hn::TableLookupBytes(low_bits, low), hn::TableLookupBytes(high_bits, high));
    if (!hn::AllTrue(d8, hn::Eq(met, zero))) break;
    const auto slash = hn::VecFromMask(d8, hn::Eq(text, hn::Set(d8, '/')));  // -1 (all ones) for a slash
    const auto sextets = hn::Add(text, hn::TableLookupBytes(roll, hn::Add(high, slash)));
    const auto pairs = hn::BitCast(d16, sextets);
    const auto twelve = hn::Or(hn::ShiftLeft<6>(hn::And(pairs, hn::Set(d16, 0x3f))), hn::ShiftRight<8>(pairs));
    const auto quads = hn::BitCast(d32, twelve);
    const auto bytes = hn::Or(hn::ShiftLeft<12>(hn::And(quads, hn::Set(d32, 0xfff))), hn::ShiftRight<16>(quads));
    hn::StoreU(hn::TableLookupBytes(hn::BitCast(d8, bytes), order), d8, out);
  }
  return i;
}

#else

HWY_ATTR std::size_t encode(const std::uint8_t*, std::size_t, std::uint8_t*) { return 0; }
HWY_ATTR std::size_t decode(const std::uint8_t*, std::size_t, std::uint8_t*) { return 0; }

#endif

}  // namespace stele::inline v0::precision_detail::base64_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace stele::inline v0 {
namespace precision_detail::base64_kernels {

HWY_EXPORT(encode);
HWY_EXPORT(decode);

// In the namespace of HWY_EXPORT, because with a single target, Highway calls the target's function by a relative name.
static std::size_t encode_best(const std::uint8_t* in, std::size_t size, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode)(in, size, out);
}
static std::size_t decode_best(const std::uint8_t* in, std::size_t size, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(decode)(in, size, out);
}

// The vector arithmetic assumes a little-endian machine.
static constexpr bool simd = std::endian::native == std::endian::little;

static constexpr char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static constexpr std::uint32_t foreign = 1U << 31;
static constexpr auto sextet_of = [] {
  std::array<std::uint32_t, 256> table{};
  table.fill(foreign);
  for (std::uint32_t i = 0; i < 64; ++i) table[static_cast<unsigned char>(alphabet[i])] = i;
  return table;
}();

}  // namespace precision_detail::base64_kernels

void base64_encode(std::span<const std::byte> bytes, char* out) noexcept {
  using namespace precision_detail::base64_kernels;
  const auto* const in = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::size_t whole = bytes.size() / 3 * 3;
  const std::size_t rest = bytes.size() - whole;
  std::size_t i = simd ? encode_best(in, bytes.size(), reinterpret_cast<std::uint8_t*>(out)) : 0;
  out += i / 3 * 4;
  const auto put = [&](std::uint32_t block) {
    out[0] = alphabet[block >> 18];
    out[1] = alphabet[block >> 12 & 63];
    out[2] = alphabet[block >> 6 & 63];
    out[3] = alphabet[block & 63];
  };
  for (; i < whole; i += 3, out += 4) put(std::uint32_t{in[i]} << 16 | std::uint32_t{in[i + 1]} << 8 | in[i + 2]);
  if (rest == 0) return;
  put(std::uint32_t{in[i]} << 16 | (rest == 2 ? std::uint32_t{in[i + 1]} << 8 : 0));
  out[3] = '=';
  if (rest == 1) out[2] = '=';
}

std::size_t base64_decoded_size(std::string_view text) noexcept {
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  return text.size() < 4 ? 0 : text.size() / 4 * 3 - padding;
}

bool base64_decode(std::string_view text, std::byte* out) noexcept {
  using namespace precision_detail::base64_kernels;
  if (text.size() % 4 != 0) return false;
  if (text.empty()) return true;
  const auto* const in = reinterpret_cast<const std::uint8_t*>(text.data());
  const std::size_t rest = base64_decoded_size(text) % 3;
  const std::size_t last = text.size() - (rest == 0 ? 0 : 4);
  // The last 8 characters decode to at least 4 bytes, so the 4 extra bytes that a vector writes fit.
  std::size_t i = simd && text.size() > 8 ? decode_best(in, text.size() - 8, reinterpret_cast<std::uint8_t*>(out)) : 0;
  out += i / 4 * 3;
  std::uint32_t seen = 0;
  const auto block = [&](std::size_t n) {
    const std::uint32_t a = sextet_of[in[i]];
    const std::uint32_t b = sextet_of[in[i + 1]];
    const std::uint32_t c = n > 1 ? sextet_of[in[i + 2]] : 0;
    const std::uint32_t d = n > 2 ? sextet_of[in[i + 3]] : 0;
    seen |= a | b | c | d;
    return a << 18 | b << 12 | c << 6 | d;
  };
  for (; i < last; i += 4, out += 3) {
    const std::uint32_t x = block(3);
    out[0] = static_cast<std::byte>(x >> 16 & 0xff);
    out[1] = static_cast<std::byte>(x >> 8 & 0xff);
    out[2] = static_cast<std::byte>(x & 0xff);
    if (seen >= foreign) return false;
  }
  if (rest != 0) {
    const std::uint32_t x = block(rest);
    if ((x & (rest == 2 ? 0xffU : 0xffffU)) != 0) return false;
    out[0] = static_cast<std::byte>(x >> 16 & 0xff);
    if (rest == 2) out[1] = static_cast<std::byte>(x >> 8 & 0xff);
  }
  return seen < foreign;
}

}  // namespace stele::inline v0

#endif  // HWY_ONCE
