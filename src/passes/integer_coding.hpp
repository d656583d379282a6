// Quantized integers (stele/quantize.hpp): the formula that an annotation declares.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {

enum class Scheme : std::uint8_t { linear, zero_point, logarithmic };

/// Scales and zero points along an axis. Each applies to `inner` consecutive elements, in rotation.
struct Channels {
  std::uint64_t inner = 1;
  std::vector<double> scales, zero_points;

  /// Converts integers; the first one is element `first` of the tensor.
  void decode(std::span<double> numbers, std::uint64_t first) const {
    std::size_t channel = static_cast<std::size_t>(first / inner % scales.size());
    for (std::uint64_t within = first % inner; !numbers.empty(); within = 0) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(inner - within, numbers.size()));
      for (double& q : numbers.first(n)) q = (q - zero_points[channel]) * scales[channel];
      numbers = numbers.subspan(n);
      channel = channel + 1 == scales.size() ? 0 : channel + 1;
    }
  }
};

/// The meaning of a tensor's integers, with the annotation's fields.
struct IntegerCoding {
  Scheme scheme = Scheme::linear;
  unsigned bits = 8;
  bool sign = false;
  bool symmetric = false;
  double low = 0;                              // linear: min; zero_point: the zero point
  double high = 0;                             // linear, logarithmic: max
  double scale = 0;                            // zero_point
  double steps = 255;                          // linear
  double shift = 0;                            // linear
  std::unique_ptr<const Channels> channels{};  // zero_point with an axis

  /// Computes the members that depend on the bits.
  void finish() {
    steps = std::ldexp(1.0, static_cast<int>(bits)) - (sign && symmetric ? 2.0 : 1.0);
    shift = sign ? std::ldexp(1.0, static_cast<int>(bits) - 1) - (symmetric ? 1.0 : 0.0) : 0.0;
  }

  double decode(double q) const {
    switch (scheme) {
      case Scheme::linear:
        return (q + shift) / steps * (high - low) + low;
      case Scheme::zero_point:
        return (q - low) * scale;
      case Scheme::logarithmic:
        break;
    }
    // A sign takes the top bit, so that q may be negative in two's complement.
    const double codes = std::ldexp(1.0, static_cast<int>(sign ? bits - 1 : bits));
    const bool negative = sign && (q < 0 || q >= codes);
    const double code = !negative ? q : q < 0 ? q + codes : q - codes;
    const double value = std::exp2(code + std::ceil(std::log2(high)) - (codes - 1.0));
    return negative ? -value : value;
  }
  void decode(std::span<double> numbers, std::uint64_t first) const {
    if (channels != nullptr) return channels->decode(numbers, first);
    for (double& x : numbers) x = decode(x);
  }
  double encode(double x) const { return std::clamp(std::nearbyint((x - low) / (high - low) * steps), 0.0, steps); }
};

/// Parses the annotation of a tensor with that shape. Errors: unsupported (an unknown scheme, or lists or an axis that
/// do not match the shape).
Result<IntegerCoding> integer_coding(const Value& note, std::span<const Extent> shape);

/// Returns the error for an annotation that dequantize() cannot apply.
Error unknown_scheme();

}  // namespace stele::inline v0::detail
