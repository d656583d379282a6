// Builds a flat Snapshot of arrays in any byte order and axis order.
#pragma once

#include <string_view>
#include <vector>

#include "encodings/npy/header.hpp"
#include "passes/stored_order.hpp"
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
    order_.add(array.big_endian, array.fortran, shape);
    return builder_.tensor(name, array.dtype, shape, array.bytes, provider);
  }

  /// Adds an entry that is not a tensor. Returns its node.
  std::uint32_t add_unreadable(std::string_view name, std::string_view reason, std::uint64_t bytes,
                               const Provider& provider) {
    order_.add_opaque();
    return detail::add_unreadable(builder_, name, reason, bytes, provider);
  }

  Result<Snapshot> finish() { return order_.apply(builder_.finish()); }

 private:
  SnapshotBuilder builder_;
  StoredOrder order_;
};

/// Sets the dtype of elements without a type to `own`, or to the option's dtype if `own` is DType::none. Errors:
/// malformed (`own` does not fit), unsupported (no option), invalid_argument (the option does not fit).
Status set_dtype(Array& array, DType own, const NpyOptions& options);

}  // namespace stele::inline v0::detail::numpy
