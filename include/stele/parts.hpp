// Linear layers of quantized checkpoints as they are stored: fields for the parts of a weight, for engines whose
// kernels take them. A field `stele::parts::Gptq q_proj` loads the tensors `q_proj.qweight`, `q_proj.qzeros` and so on,
// or views them in the mapped file (Storage::mmap); a class with the weight itself, decoded, has a field
// `stele::Tensor<float, 2> weight` instead. Layouts and formulas: docs/guide/quantized-checkpoints.md.
//
// N: rows of the weight (outputs), K: columns (inputs), g: elements of a row with the same scale.
#pragma once

#include <cstdint>
#include <optional>

#include "stele/macros.hpp"
#include "stele/module.hpp"
#include "stele/record.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0 {

/// A float of 8 bits: 4 of exponent, 3 of mantissa, no infinity, up to 448 (OCP OFP8 1.0, E4M3). A storage type.
struct float8_e4m3fn {
  std::uint8_t bits;
};
template <>
inline constexpr DType dtype_of_v<float8_e4m3fn> = DType::f8_e4m3fn;

namespace detail {

/// Decodes the weight that the parts of a layer are.
STELE_EXPORT Result<Tensor<float, 2>> decode_parts(const Snapshot& layer);

}  // namespace detail

/// Returns the weight [N, K] of such a layer, or of a class with fields of these names. Errors: those of a file whose
/// parts contradict each other (malformed).
template <class Layer>
Result<Tensor<float, 2>> decode(const Layer& layer) {
  STELE_TRY_ASSIGN(const Snapshot parts, snapshot_of(layer));
  return detail::decode_parts(parts);
}

namespace parts {

/// FP8 blocks of DeepSeek.
struct Fp8Blocks {
  Tensor<float8_e4m3fn, 2> weight;       ///< [N, K]
  Tensor<float, 2> weight_scale_inv;     ///< [N / 128, K / 128], rounded up
  std::optional<Tensor<float, 1>> bias;  ///< [N]
};

/// Integers of compressed-tensors (`pack-quantized`), symmetric. Scale: the dtype of the model.
template <class Scale = bfloat16>
struct PackedIntegers {
  Tensor<std::int32_t, 2> weight_packed;  ///< [N, K * bits / 32]
  Tensor<Scale, 2> weight_scale;          ///< [N, K / g]
  Tensor<std::int64_t, 1> weight_shape;   ///< N, K
  std::optional<Tensor<Scale, 1>> bias;   ///< [N]
};

/// NVFP4 of compressed-tensors.
template <class Bias = bfloat16>
struct Nvfp4 {
  Tensor<std::uint8_t, 2> weight_packed;  ///< [N, K / 2]
  Tensor<float8_e4m3fn, 2> weight_scale;  ///< [N, K / 16]
  Tensor<float, 1> weight_global_scale;   ///< one number, which divides the scales
  std::optional<Tensor<Bias, 1>> bias;    ///< [N]
};

/// MXFP4 of compressed-tensors.
template <class Bias = bfloat16>
struct Mxfp4 {
  Tensor<std::uint8_t, 2> weight_packed;  ///< [N, K / 2]
  Tensor<std::uint8_t, 2> weight_scale;   ///< [N, K / 32]: exponents
  std::optional<Tensor<Bias, 1>> bias;    ///< [N]
};

/// GPTQ.
struct Gptq {
  Tensor<std::int32_t, 2> qweight;         ///< [K * bits / 32, N]
  Tensor<std::int32_t, 2> qzeros;          ///< [K / g, N * bits / 32]
  Tensor<float16, 2> scales;               ///< [K / g, N]
  Tensor<std::int32_t, 1> g_idx;           ///< [K]: the group of a column
  std::optional<Tensor<float16, 1>> bias;  ///< [N]
};

/// AWQ in the layout `gemm`.
struct Awq {
  Tensor<std::int32_t, 2> qweight;         ///< [K, N / 8]
  Tensor<std::int32_t, 2> qzeros;          ///< [K / g, N / 8]
  Tensor<float16, 2> scales;               ///< [K / g, N]
  std::optional<Tensor<float16, 1>> bias;  ///< [N]
};

}  // namespace parts
}  // namespace stele::inline v0
