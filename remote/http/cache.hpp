// Blocks of remote files, kept in a folder of this machine.
#pragma once

#include <string>

#include "stele/remote.hpp"

namespace stele::inline v0::remote {

/// Returns a source that keeps the bytes that it reads from another source in Options::cache_folder, and reads them
/// from there again. `identity` names the file and its version. Returns `file` itself if no folder is set, or if the
/// folder cannot be used.
SourcePtr cached(SourcePtr file, const std::string& identity, const Options& options);

}  // namespace stele::inline v0::remote
