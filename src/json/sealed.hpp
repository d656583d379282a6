// JSON objects that end with their own checksum, which detects every flipped bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stele/result.hpp"

namespace stele::inline v0::detail::json {

/// Returns the number as 16 hexadecimal digits.
STELE_EXPORT std::string hex(std::uint64_t number);
/// Parses 16 hexadecimal digits; returns nullopt for other text.
STELE_EXPORT std::optional<std::uint64_t> from_hex(std::string_view text);

/// Completes an object whose last member is already written: appends the member "xxh3", the XXH3-64 of all bytes before
/// it, and the closing brace.
STELE_EXPORT void seal(std::string& object);
/// Verifies the checksum of such an object. Errors: truncated (the checksum is missing), checksum.
STELE_EXPORT Status check_seal(std::string_view object);

}  // namespace stele::inline v0::detail::json
