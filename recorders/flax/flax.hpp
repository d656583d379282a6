// Definitions that the reader and the writer of Flax's files share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "stele/dtype.hpp"

namespace stele::inline v0::detail::flax {

/// Types of extensions (flax/serialization.py, _MsgpackExtType).
inline constexpr std::int8_t array_type = 1, complex_type = 2, scalar_type = 3;

/// Keys of the map of a large array, in the file's order.
inline constexpr std::string_view parts_key = "__msgpack_chunked_array__", shape_key = "shape", chunks_key = "chunks";

/// Key of the annotation of a NumPy scalar.
inline constexpr std::string_view scalar_note = "flax.scalar";

/// A dtype and its name in NumPy or ml_dtypes, which store each element in whole bytes.
struct FlaxType {
  std::string_view name;
  DType dtype;
};
inline constexpr FlaxType types[] = {
    {"float64", DType::f64},
    {"float32", DType::f32},
    {"float16", DType::f16},
    {"bfloat16", DType::bf16},
    {"float8_e4m3fn", DType::f8_e4m3fn},
    {"float8_e5m2", DType::f8_e5m2},
    {"float8_e8m0fnu", DType::f8_e8m0},
    {"float8_e4m3fnuz", DType::f8_e4m3fnuz},
    {"float8_e5m2fnuz", DType::f8_e5m2fnuz},
    {"int64", DType::i64},
    {"int32", DType::i32},
    {"int16", DType::i16},
    {"int8", DType::i8},
    {"uint64", DType::u64},
    {"uint32", DType::u32},
    {"uint16", DType::u16},
    {"uint8", DType::u8},
    {"bool", DType::boolean},
    {"complex64", DType::c64},
    {"complex128", DType::c128},
};

/// Returns null if Flax does not have the dtype.
inline const FlaxType* type_of(DType dtype) noexcept {
  const auto* found =
      std::find_if(std::begin(types), std::end(types), [&](const FlaxType& t) { return t.dtype == dtype; });
  return found != std::end(types) ? found : nullptr;
}

}  // namespace stele::inline v0::detail::flax
