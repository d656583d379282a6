// bincode 2, `config::standard()`. Files store no types, so reader and writer must know them.
//
//  1. u16, u32, u64, usize: one byte if below 251; else fb and u16, fc and u32, or fd and u64, little-endian. i16 to
//     isize: zigzag (0, -1, 1, -2, … become 0, 1, 2, 3, …), then like unsigned integers. u8, i8, bool: one byte. f32,
//     f64: little-endian.
//  2. String, bytes, list, map: the count as in 1, then the elements. Array, tuple, struct: their contents.
//  3. Option: 00, or 01 and the value. Enum: the variant's number as in 1, then its contents. f16: its bits as a u16.
//
// Source: https://github.com/bincode-org/bincode/blob/v2.0.1/docs/spec.md.
#pragma once

#include <bit>
#include <cstdint>

#include "cursor.hpp"
#include "types.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Reads a number in the encoding of 1. Errors: truncated, malformed.
inline Result<std::uint64_t> read_number(Cursor& in) {
  const std::uint64_t at = in.position();
  STELE_TRY_ASSIGN(const auto first, in.little<std::uint8_t>());
  if (first < 0xfb) return first;
  if (first > 0xfd) {
    return Error(Errc::malformed, "a number of more than 64 bits").offset(at).found("byte " + std::to_string(first));
  }
  const std::size_t size = std::size_t{2} << (first - 0xfb);
  STELE_TRY_ASSIGN(const std::byte* bytes, in.take(size));
  std::uint64_t n = 0;
  for (std::size_t i = size; i-- != 0;) n = n << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return n;
}
inline std::int64_t from_zigzag(std::uint64_t n) {
  return static_cast<std::int64_t>(n >> 1) ^ -static_cast<std::int64_t>(n & 1);
}
inline std::uint64_t to_zigzag(std::int64_t n) {
  return static_cast<std::uint64_t>(n) << 1 ^ static_cast<std::uint64_t>(n >> 63);
}
/// Appends a number in the encoding of 1.
inline void append_number(std::vector<std::byte>& out, std::uint64_t n) {
  const unsigned size = n < 0xfb ? 1 : n <= UINT16_MAX ? 2 : n <= UINT32_MAX ? 4 : 8;
  if (n >= 0xfb) out.push_back(static_cast<std::byte>(size == 2 ? 0xfb : size == 4 ? 0xfc : 0xfd));
  for (unsigned i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(n >> (8 * i)));
}

/// Reads a dtype, stored as its number in that era. Errors: unsupported, malformed.
Result<Spelled> read_dtype(Cursor& in, BurnEra era);
/// Appends a dtype's number. Errors: not_representable (the era does not have the dtype).
Status append_dtype(std::vector<std::byte>& out, const Value& spelled, BurnEra era);

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
