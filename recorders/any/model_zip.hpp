// Zip files that contain one file of a model: a llamafile, a downloaded archive.
#pragma once

#include "stele/format.hpp"

namespace stele::inline v0::detail {

/// Returns the format that opens the file of a model in a zip file, which other bytes may precede (a program): null if
/// the source is not such a file. The format has no row in format_families(), because no extension belongs to it.
/// Errors of its open(): malformed (several files of models), those of the zip file and of the file's format. Errors:
/// io, out_of_memory.
Result<const Format*> model_zip_format(const Source& source);

/// Detects the format like format_of_content(). `zips`: also opens a file in a zip file. That file must not be such a
/// zip file, because a zip file can contain itself.
Result<const Format*> format_in(const Source& source, bool zips);

}  // namespace stele::inline v0::detail
