// CRC-32C (Castagnoli), the checksum in TensorFlow's files and LevelDB's tables.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Continues the CRC-32C `crc` of previous bytes (0 if there are none) with more bytes. Can be used as a detail::Crc32.
STELE_EXPORT std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// Computes crc32c() without special instructions, for tests.
STELE_EXPORT std::uint32_t crc32c_by_table(std::uint32_t crc, const void* data, std::size_t size) noexcept;

/// Returns the stored form of a checksum. LevelDB masks it, because the CRC of data that contains its own CRC is weak.
constexpr std::uint32_t masked_crc(std::uint32_t crc) noexcept { return std::rotr(crc, 15) + 0xa282ead8U; }
/// Inverts masked_crc().
constexpr std::uint32_t unmasked_crc(std::uint32_t stored) noexcept { return std::rotl(stored - 0xa282ead8U, 15); }

}  // namespace stele::inline v0::detail
