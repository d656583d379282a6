// Little-endian numbers in bytes. Freestanding, because the heapless reader uses this header.
#pragma once

#include <cstddef>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

template <class T>
constexpr T load_le(const std::byte* at) noexcept {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (static_cast<T>(at[i]) << (8 * i)));
  return value;
}
template <class T>
constexpr void store_le(std::byte* at, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

}  // namespace stele::inline v0::detail
