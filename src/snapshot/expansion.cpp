#include "stele/expansion.hpp"

#include <string>

#include "base/limits.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0 {

Status check_expansion(const Snapshot& snapshot) {
  const detail::SnapshotData& data = *snapshot.data();
  if (data.capacity == 0) return {};
  const std::uint64_t bound = detail::add_scaled(detail::tensor_base, data.capacity, detail::max_tied_copies);
  std::uint64_t bytes = 0;
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < data.leaves.size(); ++i) {
    bytes = checked_add(bytes, data.leaves[i].bytes).value_or(UINT64_MAX);
    if (data.leaves[i].bytes > data.leaves[largest].bytes) largest = i;
  }
  if (bytes <= bound) return {};
  return Error(Errc::limit, "the tensors share their elements and take far more memory than the file")
      .path(snapshot.leaf(largest).path())
      .expected("at most " + std::to_string(bound) + " bytes for all tensors")
      .found(std::to_string(bytes))
      .hint("raise LoadOptions::limits.tensor_bytes and total_bytes");
}

}  // namespace stele::inline v0
