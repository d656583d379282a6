// The text form of a ParamId.
//
// The 8 little-endian bytes of the u64 in lower-case base32hex, first bit first: 13 characters. Older files have 6
// bytes in 10 characters, or a UUID of 36 characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stele/param.hpp"

namespace stele::inline v0::detail::burn {

/// Parses an id of 13, 10 or 36 characters. Returns nothing if the string is not an id.
std::optional<ParamId> parse_id(std::string_view text);
/// Returns an id as 13 characters, or as a UUID.
std::string id_text(const ParamId& id);
/// Derives an id from a tensor's path alone, so that equal modules give equal files.
ParamId made_id(std::string_view path);

}  // namespace stele::inline v0::detail::burn
