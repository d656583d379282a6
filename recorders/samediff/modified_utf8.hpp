// Java's modified UTF-8: U+0000 in two bytes, and characters beyond U+FFFF as two surrogates of three bytes each.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stele::inline v0::detail::samediff {

/// Converts modified UTF-8 to UTF-8. Returns nullopt for bytes that Java would not write.
std::optional<std::string> from_modified_utf8(std::string_view text);
/// Converts UTF-8 to modified UTF-8. Each byte that is not UTF-8 becomes U+FFFD.
std::string to_modified_utf8(std::string_view text);

}  // namespace stele::inline v0::detail::samediff
