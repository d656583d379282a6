// OCDBT of TensorStore ("optionally-cooperative distributed B+tree"): the newest version of a folder's keys and values.
// Byte layout (tensorstore, kvstore/ocdbt/format/): numbers are unsigned LEB128 varints unless noted, and each part
// ends with the CRC-32C of all its other bytes. A part: u32 BE magic, u64 LE bytes of the part, version (0),
// compression (0 none, 1 zstd), body, u32 LE CRC.
//
//  1. manifest.ocdbt, magic 0x0cdb3a2a. Body: uuid 16 B, kind (0: the versions follow, 1: they are in numbered files),
//     3 limits, compression of nodes; data file table; versions in columns: generations, root heights u8, file,
//     offset, length, keys, tree bytes, indirect bytes, commit times u64. The last version is the newest. References to
//     older versions follow.
//  2. A node, magic 0x0cdb20de, at the offset of a file. Body: u8 height, data file table, n entries in columns: key
//     prefix lengths (bytes shared with the key before; not of the first), suffix lengths; if the height is not 0:
//     lengths of the prefix that all keys of the subtree share; suffixes. A leaf then has value lengths, kinds u8
//     (0 inline, 1 a range of a file), files and offsets of the ranges, inline values. Other nodes have files, offsets,
//     lengths of the children, and three columns of statistics.
//  3. A data file table: n, n-1 prefix lengths, n suffix lengths, n lengths of the base path, suffixes. The paths are
//     relative to the base path of the file with the table.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "encodings/zarr/store.hpp"
#include "stele/bundle.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::ocdbt {

inline constexpr std::string_view manifest_name = "manifest.ocdbt";
inline constexpr unsigned char manifest_magic[] = {0x0c, 0xdb, 0x3a, 0x2a};

/// Opens the newest version. `prefix`: the path of the database in the folder, with a slash at its end; may be empty.
/// Reads all nodes, and takes the memory of the keys from `memory`. Errors: not_found, truncated, malformed, checksum,
/// limit, unsupported, io.
Result<std::shared_ptr<const zarr::Store>> open(const std::shared_ptr<const Bundle>& folder, std::string_view prefix,
                                                std::string name, IndexBudget& memory);

}  // namespace stele::inline v0::detail::ocdbt
