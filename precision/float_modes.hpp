// Sets the floating-point modes that the kernels require.
#pragma once

#include <cstdint>

#include "stele/config.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace stele::inline v0::precision_detail {

// Sets the default modes while a kernel runs, and restores the caller's modes and flags afterwards. Results must not
// depend on the caller's rounding mode, flushed subnormals (common in inference) or traps.
class DefaultFloatModes {
 public:
#if defined(__SSE2__)
  DefaultFloatModes() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~DefaultFloatModes() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
  DefaultFloatModes() noexcept {
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control_), "=r"(status_));
    __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
  }
  ~DefaultFloatModes() { __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(control_), "r"(status_)); }

 private:
  std::uint64_t control_;
  std::uint64_t status_;
#else
  DefaultFloatModes() noexcept {}  // the scalar kernels compute with integers
#endif
 public:
  DefaultFloatModes(const DefaultFloatModes&) = delete;
  DefaultFloatModes& operator=(const DefaultFloatModes&) = delete;
};

}  // namespace stele::inline v0::precision_detail
