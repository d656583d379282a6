// Definitions that the reader and the writer of zarr's folders share.
#pragma once

#include <string_view>

#include "stele/value.hpp"

namespace stele::inline v0::detail::zarr {

/// Keys of annotations: the attributes of an array (a map), the names of its axes (a list).
inline constexpr std::string_view attributes_note = "zarr.attributes", dimensions_note = "zarr.dimension_names";

/// Attribute of the root group of folders that stele writes. A save may replace such a folder.
inline constexpr std::string_view made_here_key = "stele.zarr";

/// Returns true if JSON can store the value, and it is read back unchanged.
bool is_plain_json(const Value& value);

}  // namespace stele::inline v0::detail::zarr
