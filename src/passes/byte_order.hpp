// Snapshot -> Snapshot: converts the machine's byte order to that of files, and back.
#pragma once

#include <bit>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns the snapshot with the bytes of each number reversed, for the `chosen` leaves or, if it is null, for all.
STELE_EXPORT Snapshot with_bytes_swapped(const Snapshot& snapshot, const std::vector<bool>* chosen = nullptr);

/// Converts between the machine's byte order, which leaves have, and the byte order of files, in both directions.
inline Snapshot in_file_order(const Snapshot& snapshot) {
  return std::endian::native == std::endian::little ? snapshot : with_bytes_swapped(snapshot);
}
inline Result<Snapshot> in_host_order(Result<Snapshot> opened) {
  if (std::endian::native == std::endian::little || !opened) return opened;
  return with_bytes_swapped(*opened);
}

}  // namespace stele::inline v0::detail
