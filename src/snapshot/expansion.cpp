#include "stele/expansion.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

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
  return Error(Errc::limit, "the tensors share elements and would take far more memory than the file")
      .path(snapshot.leaf(largest).path())
      .expected("at most " + std::to_string(bound) + " bytes for all tensors")
      .found(std::to_string(bytes))
      .hint("raise LoadOptions::limits.tensor_bytes and total_bytes");
}

Unexpanded unexpanded(const Snapshot& snapshot) {
  std::vector<std::uint64_t> times(snapshot.leaf_count(), 1);
  const auto& leaves = snapshot.data()->leaves;
  const auto may_repeat = [](const detail::LeafData& leaf) {
    return leaf.bytes != 0 && leaf.provider.ops->once != nullptr;
  };
  if (std::none_of(leaves.begin(), leaves.end(), may_repeat)) return {snapshot, std::move(times)};
  auto data = detail::derived_data(snapshot);
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    detail::LeafData& leaf = data->leaves[i];
    if (!may_repeat(leaf)) continue;
    const StoredOnce once = leaf.provider.ops->once(leaf.provider.at, leaf.provider.number);
    if (once.count == 0) continue;
    const std::uint64_t all = *element_count(snapshot.leaf(static_cast<std::uint32_t>(i)).shape());
    times[i] = all / once.count;
    leaf.provider = once.provider;
    leaf.bytes = leaf.bytes / all * once.count;
    leaf.shape = static_cast<std::uint32_t>(data->extents.size());
    leaf.rank = 1;
    data->extents.push_back(once.count);
  }
  return {Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data))), std::move(times)};
}

}  // namespace stele::inline v0
