// Similar names, which errors suggest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Longer names, and more candidates, are ignored, so that a hostile file costs little.
inline constexpr std::size_t max_compared_bytes = 256;
inline constexpr std::size_t max_compared_names = 2000;

/// Returns the candidate that differs least from `name`, or "" if none is similar.
STELE_EXPORT std::string_view most_similar(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace stele::inline v0::detail
