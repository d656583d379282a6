// Schemes of quantized weights that quantize_weights() encodes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stele/composite.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::composites {

/// How a number becomes a code.
enum class Coding : std::uint8_t { integer, float4, float8, table };
/// The numbers that determine the scale of a group.
enum class Scaling : std::uint8_t {
  largest,    ///< the largest size
  range,      ///< the lowest and the highest number; there is a zero point
  exponent,   ///< the largest size, as a power of 2
  of_weight,  ///< the largest size, relative to the largest size in the weight
};
enum class Package : std::uint8_t { deepseek, compressed_tensors, gptq, awq, bitsandbytes };

struct EncodedScheme {
  std::string_view name, format;  // of compressed-tensors
  Package package;
  Coding coding;
  Scaling scaling;
  unsigned bits;
  std::uint64_t group, row_group;  // 0: a whole row
  bool any_group;
  DType scales;  // none: the dtype of the weight
};

/// Returns the scheme with this name and group. Errors: invalid_argument.
Result<const EncodedScheme*> find_scheme(const WeightScheme& asked);

/// Returns why a weight [N, K] cannot have the scheme, or an empty string.
std::string obstacle(const EncodedScheme& scheme, std::uint64_t group, std::uint64_t n, std::uint64_t k);

}  // namespace stele::inline v0::detail::composites
