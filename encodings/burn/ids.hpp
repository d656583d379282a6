// ParamId as text.
//
// Base32hex in lower case of the u64's 8 little-endian bytes, the first bit first: 13 characters. Older files: 6 bytes
// in 10 characters, or a UUID of 36 characters.
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
/// Makes the id of a tensor without one, from its path only, so that equal modules give equal files.
ParamId made_id(std::string_view path);

}  // namespace stele::inline v0::detail::burn
