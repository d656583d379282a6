// Joins many sets of tensors at once.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Tensors that become one.
struct Join {
  std::vector<std::string> paths;
  std::string path;  // of the joined tensor, which replaces the first one
};

/// Joins each set along `axis`, in time linear in the snapshot. Errors: those of concatenate().
Result<Snapshot> concatenate_each(const Snapshot& snapshot, std::span<const Join> joins, std::size_t axis);

}  // namespace stele::inline v0::detail
