// Sorted tables in LevelDB's format (doc/table_format.md there). The index of a TensorFlow checkpoint is such a table:
//
//  1. Blocks: entries {varint bytes shared with the last key, varint other bytes of the key, varint bytes of the value,
//     key, value}; u32 offsets of the entries that share nothing ("restarts") and their number. After each block: u8
//     0 (plain) or 1 (Snappy), u32 masked CRC-32C of block and type.
//  2. An index block, whose values are the places of the blocks with entries: varint offset, varint size.
//  3. Footer, 48 bytes: places of the block of metadata and of the index, zeros up to 40 bytes, magic number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "stele/bytes.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::sstable {

/// Receives an entry; `at` is the offset of its block. The bytes are valid until the call returns.
using TableEntry = std::function<Status(std::string_view key, std::span<const std::byte> value, std::uint64_t at)>;

/// Calls `visit` with the entries in the order of their keys, which must increase. Holds one block in memory at a time,
/// of at most `max_block` bytes. Checks every byte of the file. Errors: bad_magic, truncated, malformed, checksum,
/// limit, unsupported (another compression), io.
Status read_table(const Source& source, std::uint64_t max_block, const TableEntry& visit);

/// Decompresses Snappy data (format_description.txt of Snappy). Errors: malformed, limit (more than `max_size` bytes).
Result<Bytes> snappy_bytes(std::span<const std::byte> compressed, std::uint64_t max_size);

/// Takes a varint of up to 64 bits from the front. Returns false if the varint is incomplete, or longer than needed.
bool take_varint(std::span<const std::byte>& from, std::uint64_t& out) noexcept;

}  // namespace stele::inline v0::detail::sstable
