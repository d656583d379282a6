// Blocks of remote files, kept in a folder of this machine.
#pragma once

#include <string>

#include "stele/remote.hpp"

namespace stele::inline v0::remote {

/// Returns a source that keeps what it reads of another one in Options::cache_folder, and reads it from there.
/// `identity` names the file and its version. Returns `file` itself if there is no folder, or it cannot be used.
SourcePtr cached(SourcePtr file, const std::string& identity, const Options& options);

}  // namespace stele::inline v0::remote
