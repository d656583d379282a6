// Ties written out, for formats that have none.
#pragma once

#include <cstdint>

#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Returns the snapshot without ties: what an alias stands for takes its place. Errors: limit (more names than a module
/// has). `steps` receives the number of names that were looked at beside the nodes themselves.
STELE_EXPORT Result<Snapshot> untied(const Snapshot& snapshot, std::uint64_t* steps = nullptr);

}  // namespace detail
}  // namespace v0
}  // namespace stele
