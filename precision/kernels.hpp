// What convert.cpp gets from the SIMD translation units: plain functions over arrays of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele {
inline namespace v0 {
namespace precision_detail {

/// Converts `count` elements (unaligned, no overlap). Returns true when an element overflowed or did not fit; which one
/// is for the scalar reference to find. Float overflow still gives the right bits.
using Kernel = bool (*)(const std::byte* src, std::byte* dst, std::size_t count);

struct FloatKernels {
  Kernel f32_to_f16;
  Kernel f16_to_f32;
  Kernel f32_to_bf16;
  Kernel bf16_to_f32;
  Kernel f64_to_f32;
  Kernel f32_to_f64;
  /// f64 to f32 such that a further rounding to f16 or bf16 gives what one rounding would give.
  Kernel f64_to_odd_f32;
};

/// For the best target of this machine.
FloatKernels float_kernels() noexcept;

/// The same from the scalar reference.
FloatKernels scalar_kernels() noexcept;

/// The 8-bit floats, scalar: to f32, and from f32 or f64.
Kernel from_eight_bits(DType from) noexcept;
Kernel to_eight_bits(DType from, DType to) noexcept;

/// For two different integer dtypes of different width.
Kernel int_kernel(DType from, DType to) noexcept;

/// True when an element of `width` bytes has its top bit set: the check between signed and unsigned of equal width.
bool any_top_bit(const std::byte* src, std::size_t width, std::size_t count) noexcept;

/// True when a byte is neither 0 nor 1.
bool any_bad_bool(const std::byte* src, std::size_t count) noexcept;

/// For tests: the SIMD targets (bits of Highway's enumeration) that the float kernels were compiled for and this
/// machine runs; their names; and the choice of one for every later call in the process, 0 for the best again.
STELE_EXPORT std::int64_t available_targets() noexcept;
STELE_EXPORT const char* target_name(std::int64_t target) noexcept;
STELE_EXPORT void force_target(std::int64_t target) noexcept;

}  // namespace precision_detail
}  // namespace v0
}  // namespace stele
