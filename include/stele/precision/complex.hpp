// std::complex as an element type; a separate header because its standard header is slow to compile. Include it before
// the first use of dtype_of_v on a complex type.
#pragma once

#include <complex>

#include "stele/precision/element.hpp"

namespace stele::inline v0 {

template <>
inline constexpr DType dtype_of_v<std::complex<float>> = DType::c64;
template <>
inline constexpr DType dtype_of_v<std::complex<double>> = DType::c128;

}  // namespace stele::inline v0
