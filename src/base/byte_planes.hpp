// Shuffled bytes of elements of any width, as HDF5 and Blosc store them.
#pragma once

#include <cstddef>

#include "stele/precision/shuffle.hpp"

namespace stele::inline v0::detail {

/// Joins the elements of a byte shuffle: `from` has byte 0 of all elements, then byte 1, … unshuffle_bytes() has only
/// the widths of numbers, because `.stele` files shuffle no others.
inline void join_byte_planes(const std::byte* from, std::byte* to, std::size_t count, std::size_t width) noexcept {
  if (width == 2 || width == 4 || width == 8) return unshuffle_bytes(from, to, count, width);
  for (std::size_t b = 0; b < width; ++b, from += count) {
    for (std::size_t i = 0; i < count; ++i) to[i * width + b] = from[i];
  }
}

}  // namespace stele::inline v0::detail
