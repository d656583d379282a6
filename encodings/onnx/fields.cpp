// The numbers of ONNX's messages and dtypes.
#include "fields.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace stele::inline v0::detail::onnx {
namespace {

constexpr std::array<std::pair<std::uint32_t, DType>, 25> dtypes = {{
    {1, DType::f32},          {2, DType::u8},       {3, DType::i8},           {4, DType::u16},
    {5, DType::i16},          {6, DType::i32},      {7, DType::i64},          {9, DType::boolean},
    {10, DType::f16},         {11, DType::f64},     {12, DType::u32},         {13, DType::u64},
    {14, DType::c64},         {15, DType::c128},    {16, DType::bf16},        {17, DType::f8_e4m3fn},
    {18, DType::f8_e4m3fnuz}, {19, DType::f8_e5m2}, {20, DType::f8_e5m2fnuz}, {21, DType::u4},
    {22, DType::i4},          {23, DType::f4_e2m1}, {24, DType::f8_e8m0},     {27, DType::f6_e2m3},
    {28, DType::f6_e3m2},
}};

}  // namespace

DType dtype_of(std::uint64_t code) noexcept {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.first == code; });
  return found != dtypes.end() ? found->second : DType::none;
}

std::uint32_t code_of(DType dtype) noexcept {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.second == dtype; });
  return found != dtypes.end() ? found->first : 0;
}

}  // namespace stele::inline v0::detail::onnx
