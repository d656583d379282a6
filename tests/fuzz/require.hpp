// Shared by the fuzz targets.
#pragma once

#include <cstdlib>

namespace stele_test {

inline void require(bool good) {
  if (!good) std::abort();
}

}  // namespace stele_test
