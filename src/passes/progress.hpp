// Snapshot -> Snapshot: calls the progress callback while leaves are streamed.
#pragma once

#include "base/meter.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns a snapshot that counts its bytes while its leaves are streamed. Borrows both arguments.
Snapshot with_progress(const Snapshot& snapshot, Meter& meter);

}  // namespace stele::inline v0::detail
