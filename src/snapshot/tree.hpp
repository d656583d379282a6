// A Snapshot as a tree of named places, with nested names or whole paths, which the loader walks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// One place: a node, or in a flat snapshot also a run of names with a common prefix.
struct Place {
  bool exists = false;
  std::uint32_t node = no_index;   // the node with exactly this path, or an alias's target; else no_index
  std::uint32_t alias = no_index;  // the alias through which this place was reached
  // Flat only: the path, and the range of sorted names that continue it.
  std::string prefix;
  std::uint32_t low = 0, high = 0;
};

class Tree {
 public:
  explicit Tree(const Snapshot& snapshot);
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  Place root() const;
  /// Returns a child. `hint` makes a walk in the file's order cheap: the caller keeps one per parent, initially 0.
  Place child(const Place& parent, std::string_view name, std::uint32_t& hint) const;
  Place element(const Place& parent, std::size_t number, std::uint32_t& hint) const;
  /// Returns the place at a path relative to `from`.
  Place below(Place from, std::string_view path) const;
  /// Sets `n` to the number of elements of a list. Returns false if their numbers are not 0 … n-1; `gap` is then the
  /// first missing number.
  bool count(const Place& list, std::size_t& n, std::size_t& gap) const;
  /// Visits the children of a map with their keys, in the file's order.
  void each(const Place& map, const std::function<void(std::string_view key, const Place& place)>& visit) const;

  /// Flat only: returns the tensors, values and nones that each() does not visit at any depth, because their names are
  /// not paths (`a..b`), or begin with the path of another entry and a dot.
  std::vector<std::uint32_t> hidden() const;

  const Node& node(std::uint32_t i) const { return snapshot_.nodes()[i]; }
  /// Returns true if the node does not exist, or is `none`.
  bool absent(const Place& place) const {
    return !place.exists || (place.node != no_index && node(place.node).kind == NodeKind::none);
  }
  NodeKind kind(const Place& place) const { return place.node == no_index ? NodeKind::module : node(place.node).kind; }
  bool flat() const noexcept { return snapshot_.flat(); }
  /// Returns true if the names show neither a container's kind nor an empty container.
  bool guessed() const noexcept;
  const Snapshot& snapshot() const noexcept { return snapshot_; }
  /// Returns the number of nodes that lookups in a nested snapshot have visited so far, with which tests check that the
  /// time is linear.
  std::uint64_t steps() const noexcept { return steps_; }

 private:
  /// A segment to look up: a name, a number, or either.
  struct Segment {
    std::optional<std::string_view> name;
    std::optional<std::size_t> number;
    bool is(const Node& node) const {
      if (node.name == nullptr) return number && node.name_size == *number;
      return name && std::string_view(node.name, node.name_size) == *name;
    }
  };
  /// The children of a container, sorted by name and by number.
  struct Children {
    std::vector<std::uint32_t> named, numbered;
  };
  Place at_node(std::uint32_t node) const;
  Place at_path(std::string path, std::uint32_t low, std::uint32_t high, std::uint32_t& hint) const;
  std::uint32_t lower_bound(std::string_view key, std::uint32_t low, std::uint32_t high, std::uint32_t hint) const;
  std::string_view name_at(std::uint32_t position) const;
  Place nested_child(const Place& parent, std::uint32_t& hint, const Segment& segment) const;
  std::uint32_t find_sorted(std::uint32_t parent, const Segment& segment) const;

  Snapshot snapshot_;
  std::vector<std::uint32_t> sorted_;
  std::span<const std::uint32_t> order_;  // flat: nodes by name; the snapshot's or sorted_
  // Nested: for containers with lookups out of order. A Tree belongs to one load.
  mutable std::unordered_map<std::uint32_t, Children> children_;
  mutable std::uint64_t steps_ = 0;
};

/// Splits off the first segment of `path`: `raw` with its escapes, `plain` without. Returns false if the escapes are
/// malformed.
bool first_segment(std::string_view path, std::string_view& raw, std::string& plain);

/// Parses a list index in the syntax of paths: decimal, without leading zeros.
bool parse_index(std::string_view text, std::size_t& number);

}  // namespace stele::inline v0::detail
