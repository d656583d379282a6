// Migrates modules of older versions: a hook of the module's class rewrites its part of the file before the load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// A module whose class has a hook and a newer version than the file.
struct Outdated {
  std::string place;  // the module's path in the file
  std::string path;   // the path in the loaded module
  const TypeInfo* type;
  std::uint32_t version;  // the file's version
};

/// Returns a flat snapshot in which the hooks have rewritten these modules. Ties between them and the rest remain if
/// the hook leaves the tied tensors unchanged. Errors: those that a hook returns or throws, with the module's path;
/// those of Items::build().
Result<Snapshot> rewritten(const Snapshot& snapshot, const std::vector<Outdated>& outdated);

}  // namespace stele::inline v0::detail
