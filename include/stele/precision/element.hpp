// The C++ types of tensor elements. Freestanding: no heap, no exceptions, only integer arithmetic.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "stele/config.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0 {
namespace detail {

// The four functions below are the scalar reference: every SIMD kernel gives identical bits. NaNs become quiet and keep
// their sign and the leading bits of their payload, as on F16C and Arm.

constexpr std::uint16_t f16_from_f32_bits(std::uint32_t u) noexcept {
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t a = u & 0x7FFFFFFFu;
  std::uint32_t r = 0;
  if (a > 0x7F800000u) {
    r = 0x7E00u | ((a >> 13) & 0x3FFu);
  } else if (a >= 0x47800000u) {  // 2^16 and up
    r = 0x7C00u;
  } else if (a >= 0x38800000u) {  // 2^-14, the smallest normal f16; a carry out of 65504 gives infinity
    r = (a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13;
  } else if (a > 0x33000000u) {  // above 2^-25, half the smallest subnormal
    const std::uint32_t shift = 126u - (a >> 23);
    const std::uint32_t m = (a & 0x7FFFFFu) | 0x800000u;
    r = (m + ((1u << (shift - 1)) - 1u) + ((m >> shift) & 1u)) >> shift;
  }
  return static_cast<std::uint16_t>(sign | r);
}

constexpr std::uint32_t f32_from_f16_bits(std::uint16_t h) noexcept {
  const std::uint32_t sign = (h & 0x8000u) << 16;
  const std::uint32_t m = h & 0x3FFu;
  const std::uint32_t e = (h >> 10) & 0x1Fu;
  if (e == 31) return sign | 0x7F800000u | (m << 13) | (m != 0 ? 0x400000u : 0u);
  if (e != 0) return sign | ((e + 112u) << 23) | (m << 13);
  if (m == 0) return sign;
  const auto lead = static_cast<std::uint32_t>(std::countl_zero(m)) - 21u;  // places up to the hidden bit
  return sign | ((113u - lead) << 23) | (((m << lead) & 0x3FFu) << 13);
}

constexpr std::uint16_t bf16_from_f32_bits(std::uint32_t u) noexcept {
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

constexpr std::uint32_t f32_from_bf16_bits(std::uint16_t b) noexcept {
  const std::uint32_t u = static_cast<std::uint32_t>(b) << 16;
  return (u & 0x7FFFFFFFu) > 0x7F800000u ? u | 0x400000u : u;
}

}  // namespace detail

/// IEEE 754 binary16. A storage type: compute in float. Construction rounds to nearest, ties to even; values of 65520
/// and above become infinite.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  explicit constexpr float16(float value) noexcept
      : bits(detail::f16_from_f32_bits(std::bit_cast<std::uint32_t>(value))) {}
  static constexpr float16 from_bits(std::uint16_t pattern) noexcept {
    float16 r{};
    r.bits = pattern;
    return r;
  }
  explicit constexpr operator float() const noexcept { return std::bit_cast<float>(detail::f32_from_f16_bits(bits)); }

  /// Compares by value: 0 equals -0, a NaN equals nothing.
  friend constexpr bool operator==(float16 a, float16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

/// bfloat16: the upper half of a float. A storage type: compute in float. Construction rounds to nearest, ties to even.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  explicit constexpr bfloat16(float value) noexcept
      : bits(detail::bf16_from_f32_bits(std::bit_cast<std::uint32_t>(value))) {}
  static constexpr bfloat16 from_bits(std::uint16_t pattern) noexcept {
    bfloat16 r{};
    r.bits = pattern;
    return r;
  }
  explicit constexpr operator float() const noexcept { return std::bit_cast<float>(detail::f32_from_bf16_bits(bits)); }

  /// Compares by value: 0 equals -0, a NaN equals nothing.
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

static_assert(sizeof(float16) == 2 && std::is_trivial_v<float16> && std::is_standard_layout_v<float16>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivial_v<bfloat16> && std::is_standard_layout_v<bfloat16>);

namespace detail {

// Character types are integral types in C++, but do not represent numbers of a model.
template <class T>
inline constexpr bool is_text_v = std::is_same_v<T, char> || std::is_same_v<T, wchar_t> || std::is_same_v<T, char8_t> ||
                                  std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;

template <class T>
constexpr DType dtype_of() noexcept {
  if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else if constexpr (std::is_same_v<T, float16>) {
    return DType::f16;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return DType::bf16;
  } else if constexpr (std::is_same_v<T, bool>) {
    return DType::boolean;
  } else if constexpr (std::is_same_v<T, std::byte>) {
    return DType::u8;
  } else if constexpr (std::is_integral_v<T> && !is_text_v<T>) {
    if (sizeof(T) > 8) return DType::none;
    constexpr DType kSigned[] = {DType::i8, DType::i16, DType::i32, DType::i64};
    constexpr DType kUnsigned[] = {DType::u8, DType::u16, DType::u32, DType::u64};
    return (std::is_signed_v<T> ? kSigned : kUnsigned)[std::countr_zero(sizeof(T)) & 3];
  } else {
    return DType::none;
  }
}

}  // namespace detail

/// The dtype of a C++ element type, or DType::none. stele/precision/complex.hpp adds std::complex; a specialization
/// adds a user type with the layout of a known dtype.
template <class T>
inline constexpr DType dtype_of_v = detail::dtype_of<T>();
template <class T>
inline constexpr DType dtype_of_v<const T> = dtype_of_v<T>;

// GCC before 13 defines the macro on every platform, but provides the C++ type only on x86.
#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || __GNUC__ >= 13 || defined(__x86_64__) || defined(__i386__))
namespace detail {
__extension__ typedef _Float16 native_float16;
}
template <>
inline constexpr DType dtype_of_v<detail::native_float16> = DType::f16;
#endif

/// A type whose values can be the elements of a tensor.
template <class T>
concept Element = dtype_of_v<T>
!= DType::none&& std::is_trivially_copyable_v<T> && sizeof(T) == element_size(dtype_of_v<T>);

}  // namespace stele::inline v0
