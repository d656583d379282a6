#include "stele/detail/codes.hpp"

#include <algorithm>
#include <cstring>

#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail {

void decode_codes(const std::uint8_t* codes, const float* table, CodeScale scale, float* out,
                  std::size_t count) noexcept {
  constexpr std::size_t batch = 256;
  float numbers[batch];
  for (std::size_t done = 0; done < count; done += batch) {
    const std::size_t n = std::min(batch, count - done);
    for (std::size_t i = 0; i < n; ++i) numbers[i] = table[codes[done + i]];
    for (std::size_t i = 0; i < n; ++i)
      out[done + i] = ((numbers[i] - scale.zero) * scale.scale + scale.bias) * scale.factor;
  }
}

void unpack_halves(const std::byte* bytes, bool low_first, std::uint8_t* codes, std::size_t count) noexcept {
  const unsigned first = low_first ? 0 : 4, second = 4 - first;
  for (std::size_t i = 0; i < count / 2; ++i) {
    const auto byte = static_cast<unsigned>(bytes[i]);
    codes[2 * i] = static_cast<std::uint8_t>(byte >> first & 15U);
    codes[2 * i + 1] = static_cast<std::uint8_t>(byte >> second & 15U);
  }
  if (count % 2 != 0)
    codes[count - 1] = static_cast<std::uint8_t>(static_cast<unsigned>(bytes[count / 2]) >> first & 15U);
}

namespace {

void unpack_dense(const std::byte* bytes, unsigned bits, std::uint8_t* codes, std::size_t count) noexcept {
  const std::uint64_t mask = (1U << bits) - 1U;
  std::size_t done = 0;
  for (; count - done >= 8; done += 8, bytes += bits) {  // eight codes are `bits` bytes
    std::uint64_t word = 0;
    for (unsigned i = 0; i < bits; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    for (unsigned i = 0; i < 8; ++i) codes[done + i] = static_cast<std::uint8_t>(word >> (i * bits) & mask);
  }
  std::uint64_t word = 0;
  const std::size_t left = ((count - done) * bits + 7) / 8;
  for (std::size_t i = 0; i < left; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  for (std::size_t i = 0; done < count; ++done, ++i) {
    codes[done] = static_cast<std::uint8_t>(word >> (i * bits) & mask);
  }
}

}  // namespace

void unpack_bits(const std::byte* bytes, unsigned bits, CodeLayout layout, std::uint8_t* codes,
                 std::size_t count) noexcept {
  if (bits == 4) {
    unpack_halves(bytes, true, codes, count);
  } else if (bits == 8) {
    std::memcpy(codes, bytes, count);
  } else if (layout == CodeLayout::padded && 32 % bits != 0) {
    const std::size_t each = 32 / bits;
    for (std::size_t done = 0; done < count; done += each, bytes += 4) {
      unpack_dense(bytes, bits, codes + done, std::min(each, count - done));
    }
  } else if (layout == CodeLayout::planes && (bits & (bits - 1)) != 0) {
    for (std::size_t done = 0; done < count; done += 32) {
      std::uint8_t all[32] = {}, plane[32];
      unsigned shift = 0;
      for (const unsigned width : {4U, 2U, 1U}) {
        if ((bits & width) == 0) continue;
        unpack_dense(bytes, width, plane, 32);
        for (int i = 0; i < 32; ++i) all[i] = static_cast<std::uint8_t>(all[i] | plane[i] << shift);
        bytes += std::size_t{4} * width;
        shift += width;
      }
      std::copy_n(all, std::min<std::size_t>(32, count - done), codes + done);
    }
  } else {
    unpack_dense(bytes, bits, codes, count);
  }
}

void transpose_words(const std::byte* from, std::size_t rows, std::size_t columns, std::byte* to) noexcept {
  constexpr std::size_t tile = 16, size = 4;
  for (std::size_t r0 = 0; r0 < rows; r0 += tile) {
    for (std::size_t c0 = 0; c0 < columns; c0 += tile) {
      const std::size_t r1 = std::min(rows, r0 + tile), c1 = std::min(columns, c0 + tile);
      for (std::size_t c = c0; c < c1; ++c) {
        for (std::size_t r = r0; r < r1; ++r) {
          std::memcpy(to + (c * rows + r) * size, from + (r * columns + c) * size, size);
        }
      }
    }
  }
}

void unpack_field(const std::byte* words, unsigned shift, std::uint8_t* codes, std::size_t count) noexcept {
  const std::byte* const bytes = words + shift / 8;  // bytes of little-endian words
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(static_cast<unsigned>(bytes[4 * i]) >> shift % 8 & 15U);
  }
}

Extremes extremes(const float* numbers, std::size_t count) noexcept {
  float low = numbers[0], high = numbers[0], finite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    low = numbers[i] < low ? numbers[i] : low;
    high = numbers[i] > high ? numbers[i] : high;
    finite += numbers[i] * 0;  // NaN for infinity and NaN
  }
  return {low, high, finite == 0};
}

void encode_integers(const float* numbers, float scale, float low, float high, float zero, std::uint8_t* codes,
                     std::size_t count) noexcept {
  constexpr float round = 0x1.8p23F;  // sums with it have no fraction
  for (std::size_t i = 0; i < count; ++i) {
    float q = numbers[i] / scale;
    q = q < low ? low : q;
    q = q > high ? high : q;
    q = (q + round) - round;
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(q + zero));
  }
}

void encode_e2m1(const float* numbers, float scale, std::uint8_t* codes, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float x = numbers[i] / scale;
    const float size = x < 0 ? -x : x;
    unsigned code = size > 0.25F ? 1 : 0;  // halfway between 0 and 0.5
    code += size >= 0.75F ? 1 : 0;
    code += size > 1.25F ? 1 : 0;
    code += size >= 1.75F ? 1 : 0;
    code += size > 2.5F ? 1 : 0;
    code += size >= 3.5F ? 1 : 0;
    code += size > 5 ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(code | (x < 0 ? 8U : 0U));
  }
}

void encode_between(const float* numbers, float scale, const float* bounds, std::uint8_t* codes,
                    std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float x = numbers[i] / scale;
    unsigned code = 0;
    for (int b = 0; b < 15; ++b) code += x > bounds[b] ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

void pack_halves(const std::uint8_t* codes, bool low_first, std::byte* bytes, std::size_t count) noexcept {
  const unsigned first = low_first ? 0 : 4, second = 4 - first;
  for (std::size_t i = 0; i < count / 2; ++i) {
    bytes[i] = static_cast<std::byte>(unsigned{codes[2 * i]} << first | unsigned{codes[2 * i + 1]} << second);
  }
}

}  // namespace stele::inline v0::detail
