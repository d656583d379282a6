// Stores typed properties as one metadata string, for formats that have metadata but no properties
// (docs/formats/flat.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stele/options.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// The metadata key.
inline constexpr std::string_view properties_key = "stele.properties";

/// Returns, as text, the names of the properties that are not also strings of the metadata; empty if there are none.
std::string properties_beside_metadata(const Snapshot& snapshot);
/// Returns the snapshot with its properties in the metadata. Errors: those of JSON.
Result<Snapshot> properties_to_metadata(const Snapshot& snapshot);
/// Returns the file size that bounds the properties; for a folder, whose size is unknown, the maximum.
inline std::uint64_t file_bytes(const Source& source) noexcept {
  return source.is_folder() ? UINT64_MAX : source.size();
}
/// Inverts properties_to_metadata(); returns other snapshots unchanged. `file_bytes`: size of the file. Errors:
/// malformed, unsupported, limit.
Result<Snapshot> properties_from_metadata(const Snapshot& snapshot, const Limits& limits, std::uint64_t file_bytes);

}  // namespace stele::inline v0::detail
