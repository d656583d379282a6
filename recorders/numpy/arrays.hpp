// Builds a flat Snapshot of arrays in any byte order and axis order.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <vector>

#include "encodings/npy/header.hpp"
#include "passes/byte_order.hpp"
#include "passes/transpose.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/recorders/numpy.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::numpy {

class Arrays {
 public:
  SnapshotBuilder& builder() noexcept { return builder_; }

  /// Adds a tensor with the elements at `provider`. Returns its node.
  std::uint32_t add(std::string_view name, const Array& array, const Provider& provider) {
    std::vector<Extent> shape = array.shape;
    // With fewer than two axes to exchange, both orders have the same bytes, which a load can use unchanged.
    const bool reversed = array.fortran && array.bytes != 0 &&
                          std::count_if(shape.begin(), shape.end(), [](Extent e) { return e != 1; }) > 1;
    if (reversed) std::reverse(shape.begin(), shape.end());
    reversed_.push_back(reversed);
    swapped_.push_back(array.big_endian != (std::endian::native == std::endian::big));
    return builder_.tensor(name, array.dtype, shape, array.bytes, provider);
  }

  /// Adds an entry that is not a tensor. Returns its node.
  std::uint32_t add_unreadable(std::string_view name, std::string_view reason, std::uint64_t bytes,
                               const Provider& provider) {
    reversed_.push_back(false);
    swapped_.push_back(false);
    return detail::add_unreadable(builder_, name, reason, bytes, provider);
  }

  Result<Snapshot> finish() {
    Snapshot snapshot = builder_.finish();
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
  SnapshotBuilder builder_;
  std::vector<bool> swapped_, reversed_;
};

/// Sets the dtype of elements without a type to `own`, or to the option's dtype if `own` is DType::none. Errors:
/// malformed (`own` does not fit), unsupported (no option), invalid_argument (the option does not fit).
Status set_dtype(Array& array, DType own, const NpyOptions& options);

}  // namespace stele::inline v0::detail::numpy
