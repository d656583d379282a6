// Computes paths of nodes, and finds nodes by their paths.
#include <algorithm>
#include <string>
#include <vector>

#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"

namespace stele::inline v0 {

void append_segment(std::string& path, std::string_view segment) {
  if (segment.empty()) {
    path += "\\e";
    return;
  }
  if (segment.find_first_of("\\.") == std::string_view::npos) {
    path += segment;
    return;
  }
  for (const char c : segment) {
    if (c == '\\' || c == '.') path += '\\';
    path += c;
  }
}

namespace detail {

void append_node_segment(std::string& path, const Node& node) {
  if (node.name == nullptr) {
    path += std::to_string(node.name_size);
  } else {
    append_segment(path, {node.name, node.name_size});
  }
}

std::string node_path(const SnapshotData& data, std::uint32_t node) {
  const Node& n = data.nodes[node];
  if (n.parent == no_index) return {};
  if (data.flat) return {n.name, n.name_size};
  std::string path = node_path(data, n.parent);
  if (n.parent != 0) path += '.';
  append_node_segment(path, n);
  return path;
}

std::string constant_path(const SnapshotData& data, const ConstantField& field) {
  std::string path = node_path(data, field.module);
  if (field.module != 0) path += '.';
  append_segment(path, field.name);
  return path;
}

std::string_view RunningPath::of(std::uint32_t i) {
  const Node& node = data_.nodes[i];
  if (data_.flat) return i != 0 ? std::string_view(node.name, node.name_size) : std::string_view();
  while (!open_.empty() && open_.back().end <= i) open_.pop_back();
  path_.resize(open_.empty() ? 0 : open_.back().size);
  if (i != 0) {
    if (node.parent != 0) path_ += '.';
    append_node_segment(path_, node);
  }
  if (node.end > i + 1) open_.push_back({node.end, path_.size()});
  return path_;
}

LeafPaths::LeafPaths(const SnapshotData& data) : places_(data.leaves.size()) {
  text_.reserve(data.leaves.size() * 24);
  RunningPath running(data);
  for (std::uint32_t i = 0; i < data.nodes.size(); ++i) {
    const std::string_view path = running.of(i);
    if (data.nodes[i].kind != NodeKind::tensor) continue;
    places_[data.nodes[i].index] = {text_.size(), path.size()};
    text_ += path;
  }
}

std::uint32_t clashing_sibling(const SnapshotData& data, bool tensors_too) {
  const auto& nodes = data.nodes;
  using Named = std::pair<std::string_view, std::uint32_t>;
  std::vector<Named> names;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    names.clear();
    bool tensors = true;
    std::uint64_t min_number = 0;
    for (std::uint32_t k = i + 1; k < nodes[i].end; k = nodes[k].end) {
      if (nodes[k].name == nullptr) {
        if (nodes[k].name_size < min_number) return k;
        min_number = std::uint64_t{nodes[k].name_size} + 1;
      } else {
        names.emplace_back(std::string_view(nodes[k].name, nodes[k].name_size), k);
        tensors = tensors && nodes[k].kind == NodeKind::tensor;
      }
    }
    if (tensors && !tensors_too) continue;
    std::sort(names.begin(), names.end());
    const auto same = std::adjacent_find(names.begin(), names.end(),
                                         [](const Named& a, const Named& b) { return a.first == b.first; });
    if (same != names.end()) return std::next(same)->second;
  }
  return no_index;
}

std::uint32_t misnamed_child(const SnapshotData& data) {
  if (data.flat || data.unknown_kinds.all) return no_index;
  for (std::uint32_t i = 1; i < data.nodes.size(); ++i) {
    const Node& node = data.nodes[i];
    const NodeKind in = data.nodes[node.parent].kind;
    const bool numbered = in == NodeKind::list || in == NodeKind::array || in == NodeKind::tuple;
    if (numbered != (node.name == nullptr)) return i;
  }
  return no_index;
}

}  // namespace detail

namespace {

/// Returns the tensor of a node or of an alias's target, or no_index.
std::uint32_t tensor_of(const detail::SnapshotData& data, std::uint32_t i) {
  if (data.nodes[i].kind == NodeKind::alias) i = data.nodes[i].index;
  return data.nodes[i].kind == NodeKind::tensor ? data.nodes[i].index : no_index;
}

std::string_view name_of(const Node& node) { return {node.name, node.name_size}; }

/// Returns the tensor with exactly this name in a flat snapshot.
std::uint32_t find_name(const detail::SnapshotData& data, std::string_view name) {
  if (!data.name_order.empty()) {
    const auto at = std::lower_bound(data.name_order.begin(), data.name_order.end(), name,
                                     [&](std::uint32_t i, std::string_view n) { return name_of(data.nodes[i]) < n; });
    return at != data.name_order.end() && name_of(data.nodes[*at]) == name ? tensor_of(data, *at) : no_index;
  }
  for (std::uint32_t i = 1; i < data.nodes.size(); ++i) {
    if (name_of(data.nodes[i]) != name) continue;
    if (const std::uint32_t leaf = tensor_of(data, i); leaf != no_index) return leaf;
  }
  return no_index;
}

std::uint32_t find_flat(const detail::SnapshotData& data, std::string_view path) {
  if (const std::uint32_t leaf = find_name(data, path); leaf != no_index) return leaf;
  for (const Node& node : data.nodes) {
    // For an alias of a container: its name, then a name inside the container.
    const std::string_view name = name_of(node);
    if (node.kind != NodeKind::alias || !path.starts_with(name) || path.substr(name.size(), 1) != ".") continue;
    const Node& target = data.nodes[node.index];
    if (target.kind == NodeKind::tensor || target.kind == NodeKind::value) continue;
    const std::uint32_t leaf = find_name(data, std::string(name_of(target)) + std::string(path.substr(name.size())));
    if (leaf != no_index) return leaf;
  }
  return no_index;
}

/// Returns the child of a container with that path segment.
std::uint32_t find_child(const detail::SnapshotData& data, std::uint32_t parent, std::string_view raw,
                         std::string_view plain) {
  const auto& nodes = data.nodes;
  const std::uint32_t end = nodes[parent].end;
  std::uint32_t first = parent + 1;
  std::size_t number = 0;
  const bool numeric = detail::parse_index(raw, number);
  if (numeric && number < end && first < end && nodes[first].name == nullptr) {
    // Elements of a list usually have the same size, from which the position follows.
    const std::uint64_t expected = first + number * std::uint64_t{nodes[first].end - first};
    if (expected < end) {
      const Node& guess = nodes[static_cast<std::size_t>(expected)];
      if (guess.parent == parent && guess.name == nullptr && guess.name_size == number) {
        return static_cast<std::uint32_t>(expected);
      }
    }
  }
  for (; first < end; first = nodes[first].end) {
    const Node& node = nodes[first];
    if (node.name != nullptr ? name_of(node) == plain : numeric && node.name_size == number) return first;
  }
  return no_index;
}

std::uint32_t find_nested(const detail::SnapshotData& data, std::string_view path) {
  std::uint32_t at = 0;
  std::string_view raw;
  std::string plain;
  while (!path.empty()) {
    if (data.nodes[at].kind == NodeKind::alias) at = data.nodes[at].index;
    if (!detail::first_segment(path, raw, plain)) return no_index;
    at = find_child(data, at, raw, plain);
    if (at == no_index || path.size() == raw.size() + 1) return no_index;
    path.remove_prefix(std::min(path.size(), raw.size() + 1));
  }
  return tensor_of(data, at);
}

/// Returns the number of the leaf with the path, or no_index.
std::uint32_t find_leaf(const detail::SnapshotData& data, std::string_view path) {
  if (data.nodes.empty()) return no_index;
  return data.flat ? find_flat(data, path) : find_nested(data, path);
}

}  // namespace

std::optional<LeafView> Snapshot::find(std::string_view path) const& {
  const std::uint32_t found = find_leaf(*data_, path);
  return found != no_index ? std::optional(leaf(found)) : std::nullopt;
}
std::optional<LeafView> Snapshot::find(std::string_view path) && {
  const std::uint32_t found = find_leaf(*data_, path);
  return found != no_index ? std::optional(std::move(*this).leaf(found)) : std::nullopt;
}

}  // namespace stele::inline v0
