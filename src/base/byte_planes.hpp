// Shuffled bytes of elements of any width, as HDF5 and Blosc store them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "stele/precision/shuffle.hpp"

namespace stele::inline v0::detail {

/// Undoes a byte shuffle: `from` has byte 0 of all elements, then byte 1, … and then the bytes that fill no element.
/// unshuffle_bytes() has only the widths of numbers, because `.stele` files shuffle no others.
inline void join_byte_planes(std::span<const std::byte> from, std::byte* to, std::size_t width) noexcept {
  const std::size_t count = from.size() / width;
  if (width == 2 || width == 4 || width == 8) {
    unshuffle_bytes(from.data(), to, count, width);
  } else {
    for (std::size_t b = 0; b < width; ++b) {
      for (std::size_t i = 0; i < count; ++i) to[i * width + b] = from[b * count + i];
    }
  }
  std::copy(from.begin() + static_cast<std::ptrdiff_t>(count * width), from.end(), to + count * width);
}

}  // namespace stele::inline v0::detail
