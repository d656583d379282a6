// Functions for Snapshots that consist of leaves of other Snapshots.
#pragma once

#include <cstdint>

#include "snapshot/data.hpp"
#include "stele/dtype.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {

/// Adds a tensor of another Snapshot, with its id and annotations, and returns its node. The caller must keep the other
/// Snapshot's data alive.
inline std::uint32_t add_leaf(SnapshotBuilder& to, NodeName name, const LeafView& leaf, bool conditional = false) {
  const std::uint32_t node =
      to.tensor(name, leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider(), conditional);
  if (const auto id = leaf.id()) to.set_id(*id);
  if (const Annotations* annotations = leaf.annotations()) {
    for (const auto& [key, value] : *annotations) to.annotate(key, value);
  }
  return node;
}

/// Returns the number of tensor bytes in the file of a Snapshot, for SnapshotBuilder::set_capacity.
inline std::uint64_t held_bytes(const SnapshotData& data) {
  std::uint64_t bytes = data.capacity;
  for (std::size_t i = 0; data.capacity == 0 && i < data.leaves.size(); ++i) {
    bytes = checked_add(bytes, data.leaves[i].bytes).value_or(UINT64_MAX);
  }
  return bytes;
}

}  // namespace stele::inline v0::detail
