// Reads the graph of objects in a checkpoint of TensorFlow 2.
#include "objects.hpp"

#include <algorithm>

#include "encodings/protobuf/protobuf.hpp"

namespace stele::inline v0::detail::tensorflow {

using protobuf::Reader;

Result<ObjectGraph> ObjectGraph::parse(std::span<const std::byte> message, IndexBudget& memory) {
  ObjectGraph graph;
  std::uint64_t last_node = 0;
  const auto number = [&](Reader& in) {
    const std::uint64_t node = in.number();
    last_node = std::max(last_node, node);
    return static_cast<std::uint32_t>(node);
  };
  const auto read_part = [&](std::uint32_t field, Reader in) -> Status {
    Child child{0, {}};
    Attribute attribute;
    Slot slot{0, 0, {}};
    while (in.next()) {
      if (field == 1 && in.is(1)) child.node = number(in);
      if (field == 1 && in.is(2)) child.name = in.text();
      if (field == 2 && in.is(1)) attribute.name = in.text();
      if (field == 2 && in.is(2)) attribute.full_name = in.text();
      if (field == 2 && in.is(3)) attribute.key = in.text();
      if (field == 3 && in.is(1)) slot.variable = number(in);
      if (field == 3 && in.is(2)) slot.name = in.text();
      if (field == 3 && in.is(3)) slot.slot = number(in);
    }
    if (field == 1) graph.children_.push_back(child);
    if (field == 2) graph.attributes_.push_back(attribute);
    if (field == 3) graph.slots_.push_back(slot);
    return in.status();
  };
  Reader in(message);
  while (in.next()) {
    if (!in.is(1)) continue;
    // Includes the tables for names, and arrays that grow.
    std::uint64_t bytes = 3 * (sizeof(Begin) + 32);
    graph.nodes_.push_back({static_cast<std::uint32_t>(graph.children_.size()),
                            static_cast<std::uint32_t>(graph.attributes_.size()),
                            static_cast<std::uint32_t>(graph.slots_.size())});
    Reader node = in.message();
    while (node.next()) {
      for (const std::uint32_t field : {1U, 2U, 3U}) {
        if (!node.is(field)) continue;
        bytes += 3 * sizeof(Attribute);
        STELE_TRY(read_part(field, node.message()));
      }
      if (!memory.take(std::exchange(bytes, 0))) return index_error("the graph of objects needs too much memory");
    }
    STELE_TRY(node.status());
    if (!memory.take(bytes)) return index_error("the graph of objects needs too much memory");
  }
  STELE_TRY(in.status());
  if (last_node < graph.size() || (last_node == 0 && graph.size() == 0)) return graph;
  return Error(Errc::malformed, "the graph of objects refers to an object that is not in it")
      .expected("less than " + std::to_string(graph.size()))
      .found(std::to_string(last_node));
}

const ObjectGraph::Child* ObjectGraph::find(std::uint32_t node, std::string_view name) const {
  const auto all = children(node);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Child& c) { return c.name == name; });
  return found != all.end() ? &*found : nullptr;
}

}  // namespace stele::inline v0::detail::tensorflow
