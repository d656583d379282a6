// std::complex as an element type; a separate header because its standard header is slow to compile. Include it before
// the first use of dtype_of_v on a complex type.
#pragma once

#include <complex>

#include "stele/precision/element.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

template <>
inline constexpr DType dtype_of_v<std::complex<float>> = DType::c64;
template <>
inline constexpr DType dtype_of_v<std::complex<double>> = DType::c128;

/// A complex number outside a tensor is a value: a list of its real and imaginary part.
template <std::floating_point F>
struct value_traits<std::complex<F>> {
  static constexpr bool plain = true;
  static Value to_value(const std::complex<F>& z) { return Value::List{z.real(), z.imag()}; }
  static std::string_view from_value(std::complex<F>& z, const Value& value) {
    const auto parts = value.to<std::vector<F>>();
    if (!parts || parts->size() != 2) return "a list of two numbers";
    z = {(*parts)[0], (*parts)[1]};
    return {};
  }
};

}  // namespace stele::inline v0
