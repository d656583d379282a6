// Blocks of quantized numbers as ggml (llama.cpp) and GGUF files define them: a fixed number of elements with common
// scales. Compiled once, uses SIMD, gives identical bits on every machine. Layouts: docs/formats/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0 {

/// Returns true if `encode_blocks` supports the dtype: q8_0, q4_0, q4_1, q5_0, q5_1, q2_K to q6_K, iq4_nl, tq1_0,
/// tq2_0, mxfp4, nvfp4, q1_0 and q2_0. Every block dtype can be decoded.
STELE_EXPORT bool encodable(DType d) noexcept;

/// Decodes `blocks` blocks of a block dtype to block_size(d).elements floats each. `src` may be unaligned and must not
/// overlap `dst`. Any bytes are valid blocks. An f16 or f32 scale that is not finite gives numbers that are not finite,
/// with 7FC00000 for every NaN. Does nothing for other dtypes.
STELE_EXPORT void decode_blocks(DType d, const std::byte* src, float* dst, std::size_t blocks) noexcept;

/// Encodes `blocks` blocks of block_size(d).elements floats each. `dst` may be unaligned and must not overlap `src`.
/// Returns the index of the first number that is not finite (all blocks are then unspecified), or blocks *
/// block_size(d).elements. Does nothing and returns 0 for dtypes that are not encodable().
///
/// The bytes are those that ggml, built without fused multiply-add, writes without an importance matrix. There is one
/// exception: for mxfp4, ggml wraps a negative exponent around to a large one; here it becomes 0, and numbers near
/// 2^-127 are kept. As in ggml, a scale below the range of f16 becomes 0, and a scale above it infinite.
STELE_EXPORT std::size_t encode_blocks(DType d, const float* src, std::byte* dst, std::size_t blocks) noexcept;

}  // namespace stele::inline v0
