// Modules of older versions: their class's hook rewrites their part of a file before the load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// A module whose class has a hook and a later version than the file.
struct Outdated {
  std::string place;  // its path in the file
  std::string path;   // its path in the module
  const TypeInfo* type;
  std::uint32_t version;  // the file's version
};

/// Returns the flat snapshot with these modules rewritten by their hooks. Ties between them and the rest stay if the
/// hook leaves the tied tensors unchanged. Errors: those that a hook returns or throws, with the module's path; those
/// of Items::build().
Result<Snapshot> rewritten(const Snapshot& snapshot, const std::vector<Outdated>& outdated);

}  // namespace stele::inline v0::detail
