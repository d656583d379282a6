// The grids of the iq block types: points that represent 8 (iq1, iq2) or 4 (iq3) elements. block_grids.cpp contains
// their origin and license.
#pragma once

#include <cstdint>

#include "stele/config.hpp"

namespace stele::inline v0::precision_detail {

// Eight codes of 2 bits: 0, 1, 2 are the magnitudes 8, 25, 43. In iq1_s_grid they are the numbers -1, 0, 1.
extern const std::uint16_t iq2_xxs_grid[256];
extern const std::uint16_t iq2_xs_grid[512];
extern const std::uint16_t iq2_s_grid[1024];
extern const std::uint16_t iq1_s_grid[2048];  // also used for iq1_m

// Four codes of 3 bits: the magnitudes 4, 12, 20, 28, 36, 44, 52, 62. In iq3_s_grid they are 1, 3, 5, ..., 15.
extern const std::uint16_t iq3_xxs_grid[256];
extern const std::uint16_t iq3_s_grid[512];

}  // namespace stele::inline v0::precision_detail
