// Modules of older versions, whose part of a file their class's hook rewrites before it is loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// A module whose class has a hook and a later version than the file.
struct Outdated {
  std::string place;  // its path in the file
  std::string path;   // and in the module
  const TypeInfo* type;
  std::uint32_t version;  // in the file
};

/// The snapshot with what the hooks make of these modules, flat. Ties between them and the rest stay where the hook
/// leaves the tied tensors as they are. Errors: what a hook returns or throws, with the module's path; as
/// Items::build().
Result<Snapshot> rewritten(const Snapshot& snapshot, const std::vector<Outdated>& outdated);

}  // namespace detail
}  // namespace v0
}  // namespace stele
