// Typed properties as one metadata string, for formats that have metadata and no properties (docs/formats/flat.md).
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

/// Returns the names of the properties that are no strings of the metadata too, as text; empty: there are none.
std::string properties_beside_metadata(const Snapshot& snapshot);
/// Returns the snapshot with its properties in the metadata. Errors: those of JSON.
Result<Snapshot> properties_to_metadata(const Snapshot& snapshot);
/// Returns the size that bounds the properties of a file; for a folder, whose size is unknown, the maximum.
inline std::uint64_t file_bytes(const Source& source) noexcept {
  return source.is_folder() ? UINT64_MAX : source.size();
}
/// Inverts properties_to_metadata(); returns other snapshots unchanged. The file had `file_bytes`. Errors: malformed,
/// unsupported, limit.
Result<Snapshot> properties_from_metadata(const Snapshot& snapshot, const Limits& limits, std::uint64_t file_bytes);

}  // namespace stele::inline v0::detail
