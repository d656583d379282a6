// JSON objects that end with their own checksum, so that every flipped bit is found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stele/result.hpp"

namespace stele::inline v0::detail::json {

/// Returns 16 hexadecimal digits.
STELE_EXPORT std::string hex(std::uint64_t number);
/// Reads 16 hexadecimal digits; nullopt for other text.
STELE_EXPORT std::optional<std::uint64_t> from_hex(std::string_view text);

/// Ends an object whose last member is written: appends the member "xxh3", the XXH3-64 of all bytes before it, and the
/// closing brace.
STELE_EXPORT void seal(std::string& object);
/// Checks such an object's checksum. Errors: truncated (it has none), checksum.
STELE_EXPORT Status check_seal(std::string_view object);

}  // namespace stele::inline v0::detail::json
