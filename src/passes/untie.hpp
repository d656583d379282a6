// Expands ties, for formats that cannot store them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns the snapshot without ties: each alias is replaced by its target. Errors: limit (more than max_names names).
/// `steps` receives the number of names visited in addition to the nodes themselves.
STELE_EXPORT Result<Snapshot> untied(const Snapshot& snapshot, std::uint64_t* steps = nullptr);

/// Visits each tensor under each of its names, in order. Errors: limit (more than max_names names), and those of
/// `visit`.
STELE_EXPORT Status each_tensor_name(const Snapshot& snapshot,
                                     const std::function<Status(const std::string& path, const Node& tensor)>& visit);

}  // namespace stele::inline v0::detail
