// Paths of nodes, and the names of a tensor.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/data.hpp"

namespace stele::inline v0::detail {

void append_node_segment(std::string& path, const Node& node);
std::string node_path(const SnapshotData& data, std::uint32_t node);

/// Computes the paths of all nodes in the order of their numbers, each in time proportional to its own segment.
class STELE_EXPORT RunningPath {
 public:
  explicit RunningPath(const SnapshotData& data) : data_(data) {}
  /// Returns the node's path; valid until the next call.
  std::string_view of(std::uint32_t node);

 private:
  struct Open {
    std::uint32_t end;
    std::size_t size;  // length of the node's path
  };
  const SnapshotData& data_;
  std::string path_;
  std::vector<Open> open_;
};

/// Returns the path of a constant. constant_text is its text in messages.
std::string constant_path(const SnapshotData& data, const ConstantField& field);
inline constexpr std::string_view constant_text =
    "a constant of a plain aggregate: files of this format have no place for it";

/// The paths of all leaves, by their numbers.
class STELE_EXPORT LeafPaths {
 public:
  explicit LeafPaths(const SnapshotData& data);
  std::string_view operator[](std::size_t leaf) const noexcept {
    return std::string_view(text_).substr(places_[leaf].begin, places_[leaf].size);
  }

 private:
  struct Range {
    std::size_t begin, size;
  };
  std::string text_;
  std::vector<Range> places_;
};

/// Returns a child whose name does not fit the kind of its container (numbers for children of lists, arrays and tuples;
/// names for children of other containers), or no_index. Guessed kinds fit any child.
STELE_EXPORT std::uint32_t misnamed_child(const SnapshotData& data);

/// Returns a node with the same name as a sibling, or an element whose number is not above its predecessor's, or
/// no_index. Skips siblings that are all tensors, unless `tensors_too`, because their paths are compared elsewhere.
STELE_EXPORT std::uint32_t clashing_sibling(const SnapshotData& data, bool tensors_too = false);

/// Adds the leaf's path to an error without a path.
Status with_path(Status status, const LeafView& leaf);

}  // namespace stele::inline v0::detail
