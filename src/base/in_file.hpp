#pragma once

#include <string_view>
#include <utility>

#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// Adds the name of a source or a sink to an error that has none.
template <class T>
Result<T> in_file(Result<T> result, std::string_view name) {
  if (result || !result.error().file().empty()) return result;
  return std::move(result).error().file(name);
}

}  // namespace stele::inline v0::detail
