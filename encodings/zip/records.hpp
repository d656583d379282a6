// Signatures and sizes of records and the rules for names, shared by reader and writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "stele/errc.hpp"

namespace stele::inline v0::detail::zip {

inline constexpr std::uint32_t local_magic = 0x04034b50;
inline constexpr std::uint32_t central_magic = 0x02014b50;
inline constexpr std::uint32_t wide_end_magic = 0x06064b50;
inline constexpr std::uint32_t locator_magic = 0x07064b50;
inline constexpr std::uint32_t end_magic = 0x06054b50;

inline constexpr std::size_t local_size = 30;
inline constexpr std::size_t central_size = 46;
inline constexpr std::size_t wide_end_size = 56;
inline constexpr std::size_t locator_size = 20;
inline constexpr std::size_t end_size = 22;

// Marks a field whose value is in zip64's extra field.
inline constexpr std::uint32_t wide = 0xffffffff;
inline constexpr std::uint16_t wide_count = 0xffff;

inline constexpr std::uint16_t zip64_id = 1;
inline constexpr std::uint16_t padding_id = 0xd935;

inline constexpr std::uint16_t descriptor_flag = 1U << 3;
inline constexpr std::uint16_t utf8_flag = 1U << 11;

/// Returns the reason why an entry of this name cannot be read, or nullptr. Names are keys, and never paths of files.
const char* unreadable_name(std::string_view name) noexcept;
/// Returns the reason why an entry of this name is not written, or nullptr: programs that unpack a zip file would
/// create no file for the entry, or one outside their folder. A folder's name ends with a slash.
const char* bad_name(std::string_view name) noexcept;

struct Entry;
/// Returns the error for which Directory refuses an entry at any position in the file; nullptr if there is none.
std::pair<Errc, const char*> fault(const Entry& entry) noexcept;

}  // namespace stele::inline v0::detail::zip
