// The orders in which a file stores the bytes and the axes of its tensors.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "passes/byte_order.hpp"
#include "passes/transpose.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Collects the orders of leaves while a snapshot is built. The leaves are added in the order of their numbers.
class StoredOrder {
 public:
  /// Adds a tensor. If its first axis is the fastest one (`fortran`), reverses `shape` for the builder. With fewer than
  /// two axes to exchange, both orders have the same bytes, which a load can use unchanged.
  void add(bool big_endian, bool fortran, std::vector<Extent>& shape) {
    const bool reversed = fortran && std::count(shape.begin(), shape.end(), 0U) == 0 &&
                          std::count_if(shape.begin(), shape.end(), [](Extent e) { return e != 1; }) > 1;
    if (reversed) std::reverse(shape.begin(), shape.end());
    reversed_.push_back(reversed);
    swapped_.push_back(big_endian != (std::endian::native == std::endian::big));
  }
  /// Adds a leaf whose bytes have no order.
  void add_opaque() {
    reversed_.push_back(false);
    swapped_.push_back(false);
  }
  /// Returns the snapshot with all tensors in the machine's byte order and the last axis as the fastest one. Errors:
  /// those of transpose_where().
  Result<Snapshot> apply(Snapshot snapshot) const {
    const auto any = [](const std::vector<bool>& list) {
      return std::find(list.begin(), list.end(), true) != list.end();
    };
    if (any(swapped_)) snapshot = with_bytes_swapped(snapshot, &swapped_);
    if (!any(reversed_)) return snapshot;
    return transpose_where(snapshot, [&, leaf = std::size_t{0}](const LeafView&) mutable {
      return reversed_[leaf++] ? std::optional(std::vector<std::size_t>()) : std::nullopt;
    });
  }

 private:
  std::vector<bool> swapped_, reversed_;
};

}  // namespace stele::inline v0::detail
