#include <memory>
#include <string>
#include <utility>

#include "snapshot/data.hpp"

namespace stele::inline v0 {

SnapshotBuilder::SnapshotBuilder() : data_(std::make_unique<detail::SnapshotData>()) {}
SnapshotBuilder::~SnapshotBuilder() = default;
SnapshotBuilder::SnapshotBuilder(SnapshotBuilder&&) noexcept = default;
SnapshotBuilder& SnapshotBuilder::operator=(SnapshotBuilder&&) noexcept = default;

void SnapshotBuilder::reserve(std::size_t nodes, std::size_t leaves, std::size_t extents) {
  data_->arena.reserve(nodes * sizeof(Node) + leaves * sizeof(detail::LeafData) + extents * sizeof(Extent));
  data_->nodes.reserve(nodes);
  data_->leaves.reserve(leaves);
  data_->extents.reserve(extents);
}

void SnapshotBuilder::set_flat() {
  data_->flat = true;
  begin(NodeKind::module, "");
}

std::string_view SnapshotBuilder::intern(std::string_view name) { return data_->names.add(name); }
void SnapshotBuilder::keep(std::shared_ptr<const void> thing) { data_->keepers.push_back(std::move(thing)); }

SnapshotBuilder::Name SnapshotBuilder::checked(Name name) {
  if (!data_->flat || name.data != nullptr || open_ == no_index) return name;
  return intern(std::to_string(name.size));  // names in a flat file are strings
}

Node& SnapshotBuilder::push(NodeKind kind, Name name, bool conditional, std::uint32_t index) {
  return detail::push_node(*data_, kind, checked(name), conditional, open_, index);
}

std::uint32_t SnapshotBuilder::begin(NodeKind kind, Name name, bool conditional, std::string_view type,
                                     std::uint32_t version) {
  std::uint32_t index = no_index;
  if (!type.empty() || version != 0) {
    // Equal types are often adjacent (the elements of a list), so comparing with the last one avoids most searches.
    const auto same = [&](const detail::TypeData& t) { return t.version == version && t.name == type; };
    if (last_type_ < data_->types.size() && same(data_->types[last_type_])) {
      index = last_type_;
    } else {
      last_type_ = index = data_->type_index.find_or_add(data_->types, type, version);
    }
  }
  push(kind, name, conditional, index);
  open_ = static_cast<std::uint32_t>(data_->nodes.size() - 1);
  return open_;
}

void SnapshotBuilder::end() {
  if (open_ == no_index) return;
  Node& node = data_->nodes[open_];
  node.end = static_cast<std::uint32_t>(data_->nodes.size());
  open_ = node.parent;
}

std::uint32_t SnapshotBuilder::tensor(Name name, DType dtype, std::span<const Extent> shape, std::uint64_t bytes,
                                      Provider provider, bool conditional) {
  detail::push_tensor(*data_, checked(name), conditional, open_, dtype, shape, bytes, provider);
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

std::uint32_t SnapshotBuilder::value(Name name, Value value, bool conditional) {
  data_->values.push_back(std::move(value));
  push(NodeKind::value, name, conditional, static_cast<std::uint32_t>(data_->values.size() - 1));
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

std::uint32_t SnapshotBuilder::none(Name name, bool conditional) {
  push(NodeKind::none, name, conditional, no_index);
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

std::uint32_t SnapshotBuilder::alias(Name name, std::uint32_t target, bool conditional) {
  push(NodeKind::alias, name, conditional, target);
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

void SnapshotBuilder::set_kind(std::uint32_t node, NodeKind kind) noexcept { data_->nodes[node].kind = kind; }

namespace {
detail::LeafExtra& last_extra(detail::SnapshotData& data) {
  detail::LeafData& leaf = data.leaves.back();
  if (leaf.extra == no_index) {
    leaf.extra = static_cast<std::uint32_t>(data.extras.size());
    data.extras.emplace_back();
  }
  return data.extras[leaf.extra];
}
}  // namespace

void SnapshotBuilder::set_id(const ParamId& id) {
  if (!data_->leaves.empty()) last_extra(*data_).id = id;
}

void SnapshotBuilder::annotate(std::string key, Value value) {
  if (data_->leaves.empty()) return;
  detail::LeafExtra& extra = last_extra(*data_);
  if (!extra.annotations) extra.annotations = std::make_unique<Annotations>();
  // Annotations are const only for readers of the Snapshot. A copy for each key would take quadratic time.
  const_cast<Annotations&>(*extra.annotations).insert_or_assign(std::move(key), std::move(value));
}

void SnapshotBuilder::set_metadata(std::map<std::string, std::string> metadata) {
  data_->metadata = std::move(metadata);
}
void SnapshotBuilder::set_properties(Value properties) {
  data_->properties = std::make_shared<const detail::Properties>(detail::Properties{std::move(properties), {}});
}
void SnapshotBuilder::set_origin(std::string key, std::string value) {
  data_->origin.insert_or_assign(std::move(key), std::move(value));
}
void SnapshotBuilder::set_in_order() { data_->in_order = true; }
void SnapshotBuilder::set_unknown_kinds(UnknownKinds kinds) { data_->unknown_kinds = kinds; }
void SnapshotBuilder::set_name_order(std::vector<std::uint32_t> nodes) { data_->name_order = std::move(nodes); }
void SnapshotBuilder::set_capacity(std::uint64_t bytes) { data_->capacity = bytes; }
std::span<const Node> SnapshotBuilder::nodes() const noexcept { return data_->nodes; }

Snapshot SnapshotBuilder::finish() {
  while (open_ != no_index) end();
  data_->type_index = {};
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data_)));
}

}  // namespace stele::inline v0
