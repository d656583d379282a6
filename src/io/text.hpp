// Small files that are read as a whole.
#pragma once

#include <cstdint>
#include <string>

#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// Reads a file of at most `max_bytes`. Errors: limit, with the message `too_large`; those of reading.
STELE_EXPORT Result<std::string> read_text(const Source& source, std::uint64_t max_bytes,
                                           const char* too_large = "the file is too large");

}  // namespace stele::inline v0::detail
