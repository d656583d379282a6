// Reads the nodes of a record.
#include "document_reader.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/hash.hpp"
#include "module/walk.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"

namespace stele::inline v0::detail::json {
namespace {

constexpr std::string_view string_key = "$str:";

/// Finds nodes by path. Hashes each node's path from its parent's hash and its own segment.
class Paths {
 public:
  explicit Paths(const SnapshotData& data) : data_(data) {
    std::vector<std::uint64_t> hashes(data.nodes.size());
    std::string segment;
    by_hash_.reserve(data.nodes.size());
    for (std::uint32_t i = 0; i < data.nodes.size(); ++i) {
      const Node& node = data.nodes[i];
      if (node.parent != no_index) {
        segment.clear();
        if (data.flat) {
          segment.assign(node.name, node.name_size);
        } else {
          append_node_segment(segment, node);
        }
        hashes[i] = combine(hashes[node.parent], segment);
      }
      by_hash_.emplace_back(hashes[i], i);
    }
    std::sort(by_hash_.begin(), by_hash_.end());
  }
  /// Returns no_index if no node has this path.
  std::uint32_t find(std::string_view path) const {
    std::uint64_t hash = 0;
    for (std::size_t begin = 0; !data_.flat && begin < path.size();) {
      std::size_t end = begin;
      while (end < path.size() && path[end] != '.') end += path[end] == '\\' ? 2 : 1;
      end = std::min(end, path.size());
      hash = combine(hash, path.substr(begin, end - begin));
      begin = end + 1;
    }
    if (data_.flat && !path.empty()) hash = combine(0, path);
    auto at = std::lower_bound(by_hash_.begin(), by_hash_.end(), std::pair(hash, std::uint32_t{0}));
    // Only malicious files have many paths with equal hashes, to cost time: limits the tries.
    for (int tries = 8; tries != 0 && at != by_hash_.end() && at->first == hash; --tries, ++at) {
      if (node_path(data_, at->second) == path) return at->second;
    }
    return no_index;
  }

 private:
  static std::uint64_t combine(std::uint64_t parent, std::string_view segment) {
    return (parent ^ hash64(segment.data(), segment.size())) * 0x9e3779b97f4a7c15U + 1;
  }
  const SnapshotData& data_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_hash_;
};

}  // namespace

/// Reads the next member of the innermost container, or the container's end.
bool DocumentReader::read_member() {
  Level& level = levels_.back();
  path_.resize(level.path);
  const bool flat = builder_.data().flat;
  if (level.kind == Container::list) {
    if (!in_->next_element()) return in_->ok() && end_container();
    if (flat) return fail(Errc::malformed, "no elements", "a document with the layout flat has a list with elements");
    const auto name = SnapshotBuilder::Name::element(level.next++);
    append_path(std::to_string(name.size));
    return read_node(name);
  }
  std::string_view key;
  if (pending_) {
    key = *std::exchange(pending_, std::nullopt);
  } else if (!in_->next_key(key, scratch_)) {
    return in_->ok() && end_container();
  }
  if (flat && (levels_.size() > 1 || level.kind != Container::module))
    return fail(Errc::malformed, "no nested nodes", "a document with the layout flat has nested nodes");
  if (level.kind == Container::variant) {
    const std::string_view name = std::exchange(level.alternative, {});
    if (key != "value" || name.data() == nullptr)
      return fail(Errc::malformed, "value", "a variant has a key other than its value");
    append_segment_of(name);
    return read_node(name);
  }
  if (level.kind == Container::elements) {
    std::size_t number = 0;
    if (!parse_index(key, number) || number >= no_index) return fail(Errc::malformed, "the number of an element");
    append_path(key);
    if (number + 1 == level.next) return fail(Errc::duplicate, "", "an element occurs twice");
    if (number < level.next) {
      return fail(Errc::malformed, "ascending numbers", "the elements of a list are not in ascending order");
    }
    level.next = static_cast<std::uint32_t>(number) + 1;
    return read_node(SnapshotBuilder::Name::element(static_cast<std::uint32_t>(number)));
  }
  std::string_view name;
  if (!name_of(key, name)) return false;
  append_segment_of(name);
  return read_node(name);
}

/// Converts a key to a name that outlives parsing: removes the escaping $, and decodes names that are not UTF-8.
bool DocumentReader::name_of(std::string_view key, std::string_view& name) {
  const std::string& text = document_->skeleton.text;
  std::string decoded;
  if (key.starts_with(string_key)) {
    key.remove_prefix(string_key.size());
    decoded.resize(base64_decoded_size(key));
    if (!base64_decode(key, std::as_writable_bytes(std::span(decoded)).data())) return fail(Errc::malformed, "base64");
    key = decoded;
  } else if (key.starts_with('$')) {
    key.remove_prefix(1);
    if (!key.starts_with('$')) return fail(Errc::unsupported, "a name that begins with $$ or without $");
  }
  if (std::greater_equal<>()(key.data(), text.data()) && std::less<>()(key.data(), text.data() + text.size())) {
    return name = key, true;
  }
  if (!take(key.size())) return false;
  name = builder_.intern(key);
  return true;
}

void DocumentReader::append_path(std::string_view text) {
  if (!path_.empty()) path_ += '.';
  path_ += text;
}
void DocumentReader::append_segment_of(std::string_view name) {
  if (builder_.data().flat) {
    path_ += name;
    return;
  }
  if (!path_.empty()) path_ += '.';
  append_segment(path_, name);
}

bool DocumentReader::begin_container(Container kind, NodeKind as, SnapshotBuilder::Name name, std::uint32_t version) {
  levels_.push_back({kind, builder_.begin(as, name, true, {}, version), path_.size()});
  return true;
}
bool DocumentReader::end_container() {
  std::string_view key;
  if (levels_.back().kind == Container::variant && levels_.back().alternative.data() != nullptr) {
    return fail(Errc::malformed, "value", "a variant has an alternative without a value");
  }
  if (levels_.back().kind == Container::elements && in_->next_key(key, scratch_)) {
    return fail(Errc::malformed, "}", "an object with $elements has another key");
  }
  if (!in_->ok()) return false;
  builder_.end();
  levels_.pop_back();
  return true;
}

bool DocumentReader::add_value(SnapshotBuilder::Name name, Value value) {
  if (!take(sizeof(Value))) return false;
  builder_.value(name, std::move(value), in_list());
  return true;
}

bool DocumentReader::read_node(SnapshotBuilder::Name name) {
  if (levels_.size() > max_depth) return fail(Errc::limit, "fewer levels", "nodes nest too deep");
  // A wrong index may store a low number of nodes. A vector that grows holds three times its content.
  if (builder_.nodes().size() >= paid_ && !take(3 * sizeof(Node))) return false;
  Value value;
  switch (in_->peek()) {
    case Kind::null:
      // A module with a null member may be a map, and other formats must keep the member's key.
      if (!levels_.empty() && levels_.back().kind == Container::module) {
        builder_.set_kind(levels_.back().node, NodeKind::map);
        unknown_kinds_.maps = true;
      }
      builder_.none(name, true);
      return in_->read_null();
    case Kind::boolean:
    case Kind::number:
    case Kind::string:
      return read_value(value) && add_value(name, std::move(value));
    case Kind::array:
      return in_->begin_array() && begin_container(Container::list, NodeKind::list, name);
    case Kind::object:
      return read_object(name);
    case Kind::none:
      break;
  }
  return fail(Errc::malformed, "a value");
}

bool DocumentReader::read_object(SnapshotBuilder::Name name) {
  const Reader start = *in_;
  std::string_view key;
  if (!in_->begin_object()) return false;
  if (!in_->next_key(key, scratch_)) {
    if (!in_->ok()) return false;
    builder_.begin(NodeKind::module, name, true);
    builder_.end();
    return true;
  }
  if (key == "$dtype") return read_tensor(name);
  if (key == "$ref") return read_alias(name) && alone();
  if (key == "$variant") return read_variant(name);
  if (key == "$elements") return in_->begin_object() && begin_container(Container::elements, NodeKind::list, name);
  if (key == "$version") {
    std::uint64_t version = 0;
    if (!in_->read_u64(version)) return false;
    if (version > 0xffffffffU) return fail(Errc::out_of_range, "a version below 2^32");
    return begin_container(Container::module, NodeKind::module, name, static_cast<std::uint32_t>(version));
  }
  Value value;
  if (key == "$value") return read_value(value) && add_value(name, std::move(value)) && alone();
  if (key == "$bytes" || key == "$str" || key == "$f64") {
    *in_ = start;
    return read_value(value) && add_value(name, std::move(value));
  }
  pending_ = key;
  return begin_container(Container::module, NodeKind::module, name);
}

bool DocumentReader::alone() {
  std::string_view key;
  if (in_->next_key(key, scratch_)) return fail(Errc::malformed, "}", "an object with a $ key has another key");
  return in_->ok();
}

bool DocumentReader::read_variant(SnapshotBuilder::Name name) {
  std::string_view alternative;
  if (in_->peek() == Kind::null) {
    if (!in_->read_null()) return false;
  } else {
    if (!in_->read_string(alternative, scratch_) || !name_of(alternative, alternative)) return false;
  }
  if (!begin_container(Container::variant, NodeKind::variant, name)) return false;
  levels_.back().alternative = alternative;
  return true;
}

bool DocumentReader::read_alias(SnapshotBuilder::Name name) {
  std::string_view target;
  if (!in_->read_string(target, scratch_) || !name_of(target, target)) return false;
  if (!take(sizeof(Alias) + target.size())) return false;
  aliases_.push_back({builder_.alias(name, no_index, in_list()), std::string(target)});
  return true;
}

/// Resolves aliases. A target is complete and comes before its aliases, so a document cannot make cycles.
Status DocumentReader::resolve() {
  if (aliases_.empty()) return {};
  SnapshotData& data = builder_.data();
  const Paths paths(data);
  for (const Alias& alias : aliases_) {
    const std::uint32_t target = paths.find(alias.target);
    const bool fits = target < alias.node && data.nodes[target].end <= alias.node &&
                      data.nodes[target].kind != NodeKind::alias && data.nodes[target].kind != NodeKind::none;
    if (!fits) {
      return Error(Errc::malformed, "a $ref does not refer to an earlier node")
          .path(node_path(data, alias.node))
          .expected("the path of an earlier node that is neither a $ref nor null")
          .found(alias.target)
          .file(document_->file);
    }
    data.nodes[alias.node].index = target;
  }
  return {};
}

}  // namespace stele::inline v0::detail::json
