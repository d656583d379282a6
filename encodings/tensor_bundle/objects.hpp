// The graph of Python objects whose variables a checkpoint of TensorFlow 2 contains: TrackableObjectGraph in
// tensorflow/core/protobuf/trackable_object_graph.proto.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::tensorflow {

/// The key of the string tensor that contains the graph.
inline constexpr std::string_view graph_key = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// A parsed graph. Its strings point into the message.
class ObjectGraph {
 public:
  struct Child {
    std::uint32_t node;
    std::string_view name;
  };
  /// A tensor of an object.
  struct Attribute {
    std::string_view name, full_name, key;
  };
  /// A tensor that an optimizer keeps for a variable.
  struct Slot {
    std::uint32_t variable, slot;
    std::string_view name;
  };

  /// Parses the message. Errors: malformed (also for an invalid node number), limit.
  static Result<ObjectGraph> parse(std::span<const std::byte> message, IndexBudget& memory);

  /// Returns the number of nodes. Node 0 is the root.
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(nodes_.size()); }
  std::span<const Child> children(std::uint32_t node) const { return range(children_, node, &Begin::child); }
  std::span<const Attribute> attributes(std::uint32_t node) const {
    return range(attributes_, node, &Begin::attribute);
  }
  std::span<const Slot> slots(std::uint32_t node) const { return range(slots_, node, &Begin::slot); }
  /// Returns the child of this name; nullptr if there is none.
  const Child* find(std::uint32_t node, std::string_view name) const;

 private:
  struct Begin {
    std::uint32_t child, attribute, slot;
  };
  template <class T>
  std::span<const T> range(const std::vector<T>& all, std::uint32_t node, std::uint32_t Begin::*member) const {
    const std::size_t end = node + 1 < nodes_.size() ? nodes_[node + 1].*member : all.size();
    return std::span(all).subspan(nodes_[node].*member, end - nodes_[node].*member);
  }

  std::vector<Begin> nodes_;
  std::vector<Child> children_;
  std::vector<Attribute> attributes_;
  std::vector<Slot> slots_;
};

}  // namespace stele::inline v0::detail::tensorflow
