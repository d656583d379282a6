// Functions of the SIMD translation units, for convert.cpp: plain functions on arrays of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0::precision_detail {

/// Converts `count` elements (unaligned, no overlap). Returns true if an element overflowed or did not fit; the caller
/// then finds the element with the scalar reference. After a float overflow, the output is still correct.
using Kernel = bool (*)(const std::byte* src, std::byte* dst, std::size_t count);

struct FloatKernels {
  Kernel f32_to_f16;
  Kernel f16_to_f32;
  Kernel f32_to_bf16;
  Kernel bf16_to_f32;
  Kernel f64_to_f32;
  Kernel f32_to_f64;
  /// Converts f64 to f32 such that a further rounding to f16 or bf16 equals a single rounding.
  Kernel f64_to_odd_f32;
};

/// Returns the kernels for the best target of this machine.
FloatKernels float_kernels() noexcept;

/// Returns the kernels of the scalar reference.
FloatKernels scalar_kernels() noexcept;

/// Return the scalar kernels of the 8-bit floats: to f32, and from f32 or f64.
Kernel from_eight_bits(DType from) noexcept;
Kernel to_eight_bits(DType from, DType to) noexcept;

/// Returns the kernel for two different integer dtypes of different width.
Kernel int_kernel(DType from, DType to) noexcept;

/// Returns true if an element of `width` bytes has its top bit set. Checks conversions between signed and unsigned
/// dtypes of equal width.
bool any_top_bit(const std::byte* src, std::size_t width, std::size_t count) noexcept;

/// Returns true if a byte is neither 0 nor 1.
bool any_bad_bool(const std::byte* src, std::size_t count) noexcept;

/// For tests: return the SIMD targets (bits of Highway's enumeration) that the float kernels support on this machine,
/// and a target's name; select a target for all later calls in the process (0 selects the best).
STELE_EXPORT std::int64_t available_targets() noexcept;
STELE_EXPORT const char* target_name(std::int64_t target) noexcept;
STELE_EXPORT void force_target(std::int64_t target) noexcept;

}  // namespace stele::inline v0::precision_detail
