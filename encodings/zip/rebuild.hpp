// Zip files that have lost their end.
#pragma once

#include <string>

#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::zip {

/// Returns the file with a new directory of the entries whose local header and bytes are complete, found by reading the
/// local headers in order. Entries that have an invalid name, or the name of an earlier one are left
/// out. `cut` becomes the name of the entry at whose bytes the file ends, if there is one. Errors: malformed (no
/// entry), io.
Result<SourcePtr> with_new_directory(SourcePtr source, std::string& cut);
/// Returns true for such a file: entries of the original may be lost.
bool has_new_directory(const Source& source) noexcept;

}  // namespace stele::inline v0::detail::zip
