// Which tensors of a file can be read whole.
#pragma once

#include <optional>
#include <vector>

#include "model.hpp"

namespace stele::command {

/// Reads and verifies each leaf as far as possible. Returns an error for each damaged leaf, nullopt for intact leaves.
/// Errors: cancelled.
Result<std::vector<std::optional<Error>>> damaged_leaves(const Snapshot& snapshot, Terminal& terminal);

/// A row for each damaged tensor: name, the range of its bytes in the file, the error.
struct Damage {
  std::string name;
  std::string range;
  std::string error;
};
Result<std::vector<Damage>> damages(const Snapshot& snapshot, const std::vector<std::optional<Error>>& errors);

}  // namespace stele::command
