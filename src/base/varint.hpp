// Unsigned numbers in LEB128: seven bits a byte, lowest first, as protobuf, LevelDB and OCDBT store them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stele::inline v0::detail {

/// Maximum length of a number of 64 bits in bytes.
inline constexpr std::size_t max_varint = 10;

/// Takes a number from the front of `from`. Returns false, and takes nothing, if the bytes end inside the number (there
/// are then fewer than max_varint), or if it has more than 64 bits.
inline bool take_varint(std::span<const std::byte>& from, std::uint64_t& out) noexcept {
  out = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto b = static_cast<std::uint64_t>(from[i]);
    if (i == max_varint - 1 && b > 1) return false;
    out |= (b & 0x7f) << (7 * i);
    if (b >= 0x80) continue;
    from = from.subspan(i + 1);
    return true;
  }
  return false;
}

}  // namespace stele::inline v0::detail
