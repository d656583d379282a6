// JSON objects that end with their own checksum, which detects every flipped bit.
#pragma once

#include <string>
#include <string_view>

#include "stele/result.hpp"

namespace stele::inline v0::detail::json {

/// Completes an object whose last member is already written: appends the member "xxh3", the XXH3-64 of all bytes before
/// it, and the closing brace.
STELE_EXPORT void seal(std::string& object);
/// Verifies the checksum of such an object. Errors: truncated (the checksum is missing), checksum.
STELE_EXPORT Status check_seal(std::string_view object);

}  // namespace stele::inline v0::detail::json
