#include "base/crc32c.hpp"

#include <array>
#include <cstring>

#include "stele/detail/little_endian.hpp"
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace stele::inline v0::detail {
namespace {

/// Table k advances a byte by k more zero bytes, so that eight bytes take one step.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables tables = [] {
  constexpr std::uint32_t polynomial = 0x82f63b78;  // in reflected bit order
  Tables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? polynomial : 0);
    t[0][i] = crc;
  }
  for (std::size_t k = 1; k < t.size(); ++k) {
    for (std::size_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 0xff];
  }
  return t;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2,crc32"))) std::uint32_t by_machine(std::uint32_t crc, const unsigned char* at,
                                                                 std::size_t size) {
  const auto word = [](const unsigned char* from) {
    std::uint64_t w = 0;
    std::memcpy(&w, from, sizeof w);
    return w;
  };
  std::uint64_t sum = ~crc;
  for (; size >= 8; size -= 8, at += 8) sum = _mm_crc32_u64(sum, word(at));
  for (; size != 0; --size) sum = _mm_crc32_u8(static_cast<std::uint32_t>(sum), *at++);
  return ~static_cast<std::uint32_t>(sum);
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  const auto* at = static_cast<const std::byte*>(data);
  crc = ~crc;
  for (; size >= 8; size -= 8, at += 8) {
    const std::uint64_t w = load_le<std::uint64_t>(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][w >> 8 * k & 0xff];
  }
  for (; size != 0; --size) crc = crc >> 8 ^ tables[0][(crc ^ std::to_integer<std::uint32_t>(*at++)) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return by_machine(crc, static_cast<const unsigned char*>(data), size);
#endif
  return crc32c_by_table(crc, data, size);
}

}  // namespace stele::inline v0::detail
