// Recovers zip files that have lost their end.
#pragma once

#include <string>

#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::zip {

/// Returns the file with a new directory of the entries whose local header and bytes are complete, which the function
/// finds by reading the local headers in order. Omits entries with an invalid name or the name of an earlier entry.
/// Sets `cut` to the name of the entry in whose bytes the file ends, if there is one. Errors: malformed (no entry), io.
Result<SourcePtr> with_new_directory(SourcePtr source, std::string& cut);
/// Returns true for a source of with_new_directory(): entries of the original may be missing.
bool has_new_directory(const Source& source) noexcept;

}  // namespace stele::inline v0::detail::zip
