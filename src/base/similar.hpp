// Finds similar names for suggestions in errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Longer names and further candidates are ignored, so that a hostile file costs little time.
inline constexpr std::size_t max_compared_bytes = 256;
inline constexpr std::size_t max_compared_names = 2000;

/// Returns the candidate with the smallest distance to `name`, or "" if none is similar.
STELE_EXPORT std::string_view most_similar(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace stele::inline v0::detail
