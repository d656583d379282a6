// Names of a flat Snapshot's nodes. Python objects have arbitrary keys, so two nodes may have the same name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "objects.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unreadable.hpp"

namespace stele::inline v0::detail::pytorch {

/// Finds equal names. Sorting at the end of the first reading finds them; the file is then read a second time, and the
/// later nodes with an equal name become unreadable entries.
class NodeNames {
 public:
  /// Returns true if an earlier node has the name of the next one.
  bool is_later(const SnapshotBuilder& to) const {
    return next_later_ < later_.size() && later_[next_later_].node == to.nodes().size();
  }
  /// Adds the next node: calls add() with its name. If an earlier node has the same name, adds an unreadable entry with
  /// the `bytes` of `provider` instead. The name stays valid as long as `to`. Errors: limit.
  template <class Add>
  Status add(SnapshotBuilder& to, std::string_view name, IndexBudget& memory, std::uint64_t bytes, Provider provider,
             Add add) {
    if (!is_later(to)) {
      add(name);
      return {};
    }
    if (!memory.take(unreadable_memory + name.size())) return index_error("the file's objects need too much memory");
    const std::string_view own = to.intern(std::string(name) + later_name(later_[next_later_++].earlier));
    add_unreadable(to, own, "an object with the name of another object", bytes, provider);
    return {};
  }

  /// Calls sort_names(). Errors: those of sort_names(); limit.
  Status sort(SnapshotBuilder& to, IndexBudget& memory) {
    auto sorted = sort_names(to, &found_);
    if (memory.take(3 * sizeof(RepeatedName) * found_.size())) return sorted;
    return index_error("the file's objects need too much memory");
  }

  /// Returns true if sort() failed in the first reading, and prepares for a second reading.
  bool begin_again() {
    if (found_.empty() || !later_.empty()) return false;
    std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.node < b.node; });
    later_ = std::exchange(found_, {});
    return true;
  }

 private:
  std::vector<RepeatedName> later_, found_;  // sorted by node, from the first reading; from this reading
  std::size_t next_later_ = 0;
};

/// Calls read(), which adds a Snapshot's nodes through `names` and returns the Snapshot. Calls it a second time if two
/// nodes have the same name.
template <class Read>
Result<Snapshot> read_with_names(NodeNames& names, Read read) {
  auto made = read();
  return !made && names.begin_again() ? read() : std::move(made);
}

}  // namespace stele::inline v0::detail::pytorch
