// Dtypes by their names.
#pragma once

#include <string_view>

#include "stele/dtype.hpp"

namespace stele::inline v0::detail {

/// Returns the dtype with this name() of stele/dtype.hpp; DType::none for other texts.
inline DType dtype_named(std::string_view text) noexcept {
  for (unsigned code = 1; code < 256; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (is_known(dtype) && name(dtype) == text) return dtype;
  }
  return DType::none;
}

}  // namespace stele::inline v0::detail
