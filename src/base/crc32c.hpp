// CRC-32C (Castagnoli), the checksum of TensorFlow's files and of LevelDB's tables.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Returns the CRC-32C of bytes that follow others, whose CRC-32C is `crc`; 0 for none. A detail::Crc32.
STELE_EXPORT std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// Returns the same, computed without the instructions of the machine, for tests.
STELE_EXPORT std::uint32_t crc32c_by_table(std::uint32_t crc, const void* data, std::size_t size) noexcept;

/// Returns the stored form of a checksum: LevelDB masks it, because checksums of data with checksums are weak.
constexpr std::uint32_t masked_crc(std::uint32_t crc) noexcept { return std::rotr(crc, 15) + 0xa282ead8U; }
/// Inverts masked_crc().
constexpr std::uint32_t unmasked_crc(std::uint32_t stored) noexcept { return std::rotl(stored - 0xa282ead8U, 15); }

}  // namespace stele::inline v0::detail
