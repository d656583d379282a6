#include "snapshot/data.hpp"

#include <algorithm>

#include "base/hash.hpp"

namespace stele::inline v0::detail {

std::uint32_t TypeIndex::find_or_add(std::vector<TypeData>& types, std::string_view name, std::uint32_t version) {
  const auto slot_of = [&](std::string_view n, std::uint32_t v) {
    std::size_t at =
        static_cast<std::size_t>(hash64(n.data(), n.size()) ^ v * 0x9e3779b97f4a7c15U) & (slots_.size() - 1);
    for (; ++steps_, slots_[at] != no_index; at = (at + 1) & (slots_.size() - 1)) {
      const TypeData& type = types[slots_[at]];
      if (type.version == v && type.name == n) break;
    }
    return at;
  };
  if (slots_.size() <= 2 * types.size()) {
    slots_.assign(std::bit_ceil(4 * types.size() + 8), no_index);
    known_ = 0;
  }
  // Readers with a table of types fill `types` themselves. Uses the first of several equal types.
  for (; known_ < types.size(); ++known_) {
    std::uint32_t& slot = slots_[slot_of(types[known_].name, types[known_].version)];
    if (slot == no_index) slot = static_cast<std::uint32_t>(known_);
  }
  std::uint32_t& slot = slots_[slot_of(name, version)];
  if (slot == no_index) {
    types.push_back({std::string(name), version});
    slot = static_cast<std::uint32_t>(known_++);
  }
  return slot;
}

Status not_a_delta(const SnapshotData& snapshot) {
  if (!snapshot.metadata.contains(delta_key)) return {};
  return Error(Errc::invalid_argument, "the file is a delta of weights, not a model")
      .hint("apply it to its base first");
}

std::unique_ptr<SnapshotData> derived_data(const Snapshot& base) {
  const SnapshotData& from = *base.data();
  auto data = std::make_unique<SnapshotData>();
  data->arena.reserve(from.nodes.size() * sizeof(Node) + from.leaves.size() * sizeof(LeafData) +
                      from.extents.size() * sizeof(Extent));
  data->nodes = from.nodes;
  data->leaves = from.leaves;
  data->extents = from.extents;
  data->values = from.values;
  data->types = from.types;
  data->metadata = from.metadata;
  data->properties = from.properties;
  data->left_out = from.left_out;
  data->beside = from.beside;
  data->notes = from.notes;
  data->name_order = from.name_order;
  data->flat = from.flat;
  data->unknown_kinds = from.unknown_kinds;
  data->type = from.type;
  data->origin = from.origin;
  data->in_order = from.in_order;
  data->capacity = from.capacity;
  data->extras.reserve(from.extras.size());
  for (const LeafExtra& extra : from.extras) {
    data->extras.push_back({extra.id, extra.annotations ? std::make_unique<Annotations>(*extra.annotations) : nullptr});
  }
  data->keepers.push_back(base.data());  // owns names and providers
  return data;
}

}  // namespace stele::inline v0::detail
