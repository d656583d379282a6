// Inputs of the tests of block codecs. They are made from integers and powers of two, so that every machine makes the
// same ones; tests/formats/gguf/data has what ggml made of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"

namespace block_test {

using stele::DType;

/// A linear congruential generator, of whose state only the upper half is used.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  /// Returns an integer from `least` to `greatest`.
  int integer(int least, int greatest) {
    return least + static_cast<int>(next() % static_cast<std::uint32_t>(greatest - least + 1));
  }
  /// Returns a number from 0 to 1.
  float unit() { return static_cast<float>(next() >> 8) * 0x1p-24F; }
  /// Returns a number from -2 to 2, most often near 0.
  float bell() {
    const float a = unit() + unit();
    return a + (unit() + unit()) - 2;
  }

 private:
  std::uint64_t state_;
};

inline std::vector<DType> all_types() {
  std::vector<DType> types;
  for (int code = 64; code < 128; ++code) {
    if (is_block(static_cast<DType>(code))) types.push_back(static_cast<DType>(code));
  }
  return types;
}

inline std::vector<std::byte> random_blocks(DType d, std::size_t blocks) {
  Random random(static_cast<std::uint64_t>(d));
  std::vector<std::byte> bytes(blocks * block_size(d).bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next() >> 24);
  return bytes;
}

constexpr std::string_view kInputs[] = {
    "formula", "bell",      "positive", "negative",       "scaled",      "wide",     "huge",
    "small",   "subnormal", "zeros",    "negative_zeros", "mixed_zeros", "constant", "negative_constant",
    "sparse",  "outliers",  "ties",     "below_powers",
};

/// Returns 1024 numbers; 256 for "formula".
inline std::vector<float> input(std::string_view name) {
  std::vector<float> x(name == "formula" ? 256 : 1024);
  Random random(42);
  int exponent = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool begins = i % 32 == 0;
    if (name == "formula") {
      x[i] = static_cast<float>(static_cast<int>((37 * i + 11) % 101) - 50) / 16;
      if (i >= 200) x[i] *= 0.37F;
    } else if (name == "positive") {
      x[i] = random.unit() + 0.25F;
    } else if (name == "negative") {
      x[i] = -0.25F - random.unit();
    } else if (name == "scaled") {
      if (begins) exponent = random.integer(-40, 40);
      x[i] = std::ldexp(random.bell(), exponent);
    } else if (name == "wide") {
      exponent = random.integer(-100, 100);
      x[i] = std::ldexp(random.bell(), exponent);
    } else if (name == "huge") {
      if (begins) exponent = random.integer(20, 126);
      x[i] = std::ldexp(random.bell(), exponent);
    } else if (name == "small") {
      if (begins) exponent = random.integer(-80, -30);
      x[i] = std::ldexp(random.bell(), exponent);
    } else if (name == "subnormal") {
      x[i] = std::ldexp(static_cast<float>(random.integer(-1000, 1000)), -149);
    } else if (name == "zeros") {
      x[i] = 0;
    } else if (name == "negative_zeros") {
      x[i] = -0.0F;
    } else if (name == "mixed_zeros") {
      x[i] = random.integer(0, 1) == 0 ? 0.0F : -0.0F;
    } else if (name == "constant") {
      x[i] = 1.5F;
    } else if (name == "negative_constant") {
      x[i] = -1.5F;
    } else if (name == "sparse") {
      x[i] = random.integer(0, 7) == 0 ? random.bell() : 0;
    } else if (name == "outliers") {
      x[i] = random.bell() * (i % 256 == 77 ? 512.0F : 1.0F);
    } else if (name == "ties") {
      x[i] = static_cast<float>(random.integer(-16, 16)) / 2;
    } else if (name == "below_powers") {
      if (begins) exponent = random.integer(-90, 127);
      const std::uint32_t power = static_cast<std::uint32_t>(127 + exponent) << 23;
      const auto below = static_cast<std::uint32_t>(random.integer(1, begins ? 60 : 0x1800000));
      x[i] = std::bit_cast<float>(power - below);
    } else {
      x[i] = random.bell();
    }
  }
  return x;
}

/// Returns numbers as the bytes of a little-endian file.
inline std::vector<std::byte> little_endian(const std::vector<float>& x) {
  std::vector<std::byte> bytes;
  bytes.reserve(4 * x.size());
  for (const float v : x) {
    const auto u = std::bit_cast<std::uint32_t>(v);
    for (int k = 0; k < 4; ++k) bytes.push_back(static_cast<std::byte>(u >> (8 * k)));
  }
  return bytes;
}

}  // namespace block_test
