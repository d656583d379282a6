// The dtypes of safetensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "stele/dtype.hpp"

namespace stele::inline v0::detail::safetensors {

/// The dtypes in the order of the reference implementation (enum Dtype in safetensors/src/tensor.rs), which sorts a
/// file's tensors in reverse of this order.
inline constexpr std::array<std::pair<std::string_view, DType>, 22> dtypes = {{
    {"BOOL", DType::boolean},
    {"F4", DType::f4_e2m1},
    {"F6_E2M3", DType::f6_e2m3},
    {"F6_E3M2", DType::f6_e3m2},
    {"U8", DType::u8},
    {"I8", DType::i8},
    {"F8_E5M2", DType::f8_e5m2},
    {"F8_E4M3", DType::f8_e4m3fn},
    {"F8_E8M0", DType::f8_e8m0},
    {"F8_E4M3FNUZ", DType::f8_e4m3fnuz},
    {"F8_E5M2FNUZ", DType::f8_e5m2fnuz},
    {"I16", DType::i16},
    {"U16", DType::u16},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"I32", DType::i32},
    {"U32", DType::u32},
    {"F32", DType::f32},
    {"C64", DType::c64},
    {"F64", DType::f64},
    {"I64", DType::i64},
    {"U64", DType::u64},
}};

inline std::size_t dtype_order(DType d) {
  const auto same = [&](const auto& pair) { return pair.second == d; };
  return static_cast<std::size_t>(std::find_if(dtypes.begin(), dtypes.end(), same) - dtypes.begin());
}

}  // namespace stele::inline v0::detail::safetensors
