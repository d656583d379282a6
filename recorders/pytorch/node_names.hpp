// Names of the nodes of a flat Snapshot, of which two may be the same: objects of Python have any keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/name_order.hpp"
#include "file.hpp"
#include "snapshot/unreadable.hpp"
#include "tree.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace pytorch {

/// Equal names are found at the end, when all are sorted. The file is then read a second time, and its later nodes
/// become unreadable entries.
class NodeNames {
 public:
  /// Returns true if an earlier node has the name of the next one.
  bool is_later() const { return next_later_ < later_.size() && later_[next_later_].number == names_.size(); }
  /// Adds the next node: calls add() with its name; if an earlier node has that, adds an unreadable entry with the
  /// `bytes` of `provider`. The name stays valid as long as `to`. Errors: limit.
  template <class Add>
  Status add(SnapshotBuilder& to, std::string_view name, IndexBudget& memory, std::uint64_t bytes, Provider provider,
             Add add) {
    if (!is_later()) {
      names_.push_back(name);
      add(name);
      return {};
    }
    if (!memory.take(unreadable_memory + name.size())) return index_error("the file's objects need too much memory");
    names_.push_back(to.intern(std::string(name) + later_name(later_[next_later_++].earlier)));
    add_unreadable(to, names_.back(), "an object whose name another one has", bytes, provider);
    return {};
  }

  std::string_view operator[](std::uint32_t i) const { return names_[i]; }

  /// Returns the numbers of the nodes, sorted by name. Errors: duplicate; limit.
  Result<std::vector<std::uint32_t>> order(IndexBudget& memory) {
    auto order = order_by_name(static_cast<std::uint32_t>(names_.size()), [&](std::uint32_t i) { return names_[i]; });
    for (std::size_t i = 1, earlier = 0; i < order.size(); ++i) {
      earlier = names_[order[i]] == names_[order[i - 1]] ? earlier + 1 : 0;
      if (earlier == 0) continue;
      if (!memory.take(3 * sizeof(Later))) return index_error("the file's objects need too much memory");
      found_.push_back({order[i], earlier});
    }
    if (found_.empty()) return order;
    return Error(Errc::duplicate, "two objects of the file have the same name")
        .path(std::string(names_[static_cast<std::uint32_t>(found_.front().number)]));
  }

  /// Returns true if order() failed in the first reading; the names are then those of a second one.
  bool begin_again() {
    if (found_.empty() || !later_.empty()) return false;
    std::sort(found_.begin(), found_.end(), [](const Later& a, const Later& b) { return a.number < b.number; });
    later_ = std::exchange(found_, {});
    names_.clear();
    return true;
  }

 private:
  struct Later {
    std::size_t number = 0;   // of the node, without the root
    std::size_t earlier = 0;  // number of nodes with the name before it
  };

  std::vector<std::string_view> names_;  // of the nodes, in order
  std::vector<Later> later_, found_;     // by number; those of this reading
  std::size_t next_later_ = 0;
};

/// Calls read(), a function that returns a Snapshot whose nodes `names` has, a second time if names meet.
template <class Read>
Result<Snapshot> read_with_names(NodeNames& names, Read read) {
  auto made = read();
  return !made && names.begin_again() ? read() : std::move(made);
}

}  // namespace pytorch
}  // namespace detail
}  // namespace v0
}  // namespace stele
