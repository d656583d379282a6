// Recovers zip files that have lost their end.
#pragma once

#include <string>
#include <vector>

#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::zip {

/// An entry of the original file that a new directory cannot have.
struct Omitted {
  std::string name;  // valid UTF-8
  std::string reason;
  bool cut = false;  // the file ends inside the entry
};

/// Returns the file with a new directory of the entries whose local header and bytes are complete, which the function
/// finds by reading the local headers in order. Omits entries that Directory refuses, entries with the name of an
/// earlier entry, and the entry in which the file ends. Errors: malformed (no entry), io.
Result<SourcePtr> with_new_directory(SourcePtr source);
/// Returns the omitted entries of a source of with_new_directory(), or nullptr for other sources. Entries whose headers
/// are damaged or missing are not listed.
const std::vector<Omitted>* omitted_entries(const Source& source) noexcept;

}  // namespace stele::inline v0::detail::zip
