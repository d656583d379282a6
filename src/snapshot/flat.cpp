#include "snapshot/flat.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/value_memory.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"
#include "stele/precision/base64.hpp"

namespace stele::inline v0::detail {
namespace {

constexpr std::uint64_t flat_version = 1;

constexpr std::string_view coded_prefix = "$str:";

/// Returns a path in the form that JSON can store: "$str:" and base64 if it is not UTF-8, or begins with "$str:".
std::string coded(std::string path) {
  if (json::valid_utf8(path) && !path.starts_with(coded_prefix)) return path;
  std::string text(coded_prefix);
  text.resize(coded_prefix.size() + base64_size(path.size()));
  base64_encode(std::as_bytes(std::span(path)), text.data() + coded_prefix.size());
  return text;
}

/// Inverts coded(). Files from before coded() existed store such names unchanged: a string that coded() does not
/// produce is the path itself.
std::string decoded(std::string_view text) {
  if (!text.starts_with(coded_prefix)) return std::string(text);
  const std::string_view rest = text.substr(coded_prefix.size());
  std::string path(base64_decoded_size(rest), '\0');
  const bool base64 = base64_decode(rest, std::as_writable_bytes(std::span(path)).data());
  return base64 && coded(path) == text ? path : std::string(text);
}

/// Returns true if no name shows the container: it contains no tensor, alias or value.
bool shows_nowhere(const SnapshotData& data, std::uint32_t i) {
  for (std::uint32_t k = i + 1; k < data.nodes[i].end; ++k) {
    const NodeKind kind = data.nodes[k].kind;
    if (kind == NodeKind::tensor || kind == NodeKind::value || kind == NodeKind::alias) return false;
  }
  return true;
}

}  // namespace

bool needs_empty_entry(const SnapshotData& data, std::uint32_t i) {
  const Node& node = data.nodes[i];
  if (!node.conditional || node.parent == no_index) return false;
  switch (node.kind) {
    case NodeKind::none: {
      if (data.flat) return true;  // the file declares it
      // For a missing optional, the absence of its name is sufficient; for a missing element it is not, because the
      // names of its siblings do not show it.
      const NodeKind in = data.nodes[node.parent].kind;
      return in == NodeKind::list || in == NodeKind::map || in == NodeKind::variant;
    }
    case NodeKind::module:
    case NodeKind::list:
    case NodeKind::array:
    case NodeKind::tuple:
    case NodeKind::map:
    case NodeKind::variant:
      return shows_nowhere(data, i);
    default:
      return false;
  }
}

std::vector<bool> guessed_empties(const SnapshotData& data) {
  std::vector<bool> empties;
  if (!data.unknown_kinds.all || data.flat) return empties;
  empties.resize(data.nodes.size());
  for (std::uint32_t i = 1; i < empties.size(); ++i) {
    const Node& node = data.nodes[i];
    const bool empty = node.kind == NodeKind::none || (is_container(node.kind) && node.end == i + 1);
    empties[i] = empty && !needs_empty_entry(data, i);
  }
  return empties;
}

Result<std::string> flat_extras(const Snapshot& snapshot,
                                const std::function<bool(const std::string&, const Value&)>& elsewhere,
                                const std::function<bool(const Node&)>& shown) {
  const SnapshotData& data = *snapshot.data();
  std::string text;
  json::Writer out(text);
  bool said = false;
  const char* section = nullptr;
  const auto enter = [&](const char* name) {
    if (section == name) return;
    if (section != nullptr) out.end_object();
    if (!said) {
      out.begin_object();
      out.key("version");
      out.u64(flat_version);
      said = true;
    }
    out.key(name);
    out.begin_object();
    section = name;
  };
  const auto each = [&](auto visit) -> Status {
    for (std::uint32_t i = 0; i < data.nodes.size(); ++i) STELE_TRY(visit(i, data.nodes[i]));
    return {};
  };
  STELE_TRY(each([&](std::uint32_t i, const Node& node) -> Status {
    if (node.kind != NodeKind::value) return {};
    const std::string path = snapshot.path(i);
    if (elsewhere && elsewhere(path, data.values[node.index])) return {};
    enter("values");
    out.key(coded(path));
    if (auto r = json::write_value(out, data.values[node.index]); !r) return std::move(r).error().path(path);
    return {};
  }));
  std::set<std::uint32_t> targets;
  STELE_TRY(each([&](std::uint32_t i, const Node& node) -> Status {
    if (node.kind == NodeKind::alias && !(shown && shown(data.nodes[node.index]))) {
      targets.insert(node.index);
      enter("aliases");
      out.key(coded(snapshot.path(i)));
      out.string(coded(snapshot.path(node.index)));
    }
    return {};
  }));
  const std::vector<bool> guessed = guessed_empties(data);
  STELE_TRY(each([&](std::uint32_t i, const Node& node) -> Status {
    // An alias refers to a path, which another entry of the file must show.
    const bool target = targets.contains(i) && is_container(node.kind) && shows_nowhere(data, i);
    if (needs_empty_entry(data, i) || (!guessed.empty() && guessed[i]) || (target && !data.flat)) {
      enter("empty");
      out.key(coded(snapshot.path(i)));
      out.string(name(node.kind));
    }
    return {};
  }));
  // A reader creates nodes of `empty` first, so that saving an opened file gives the same order.
  for (const bool empty : {true, false}) {
    STELE_TRY(each([&](std::uint32_t i, const Node& node) -> Status {
      if (snapshot.version(node) != 0 && (i == 0 || needs_empty_entry(data, i)) == empty) {
        enter("versions");
        out.key(coded(snapshot.path(i)));
        out.u64(snapshot.version(node));
      }
      return {};
    }));
  }
  if (!said) return text;
  out.end_object();
  out.end_object();
  return text;
}

bool is_flat_text(std::string_view text) {
  json::Reader in(text);
  std::string scratch;
  std::string_view key;
  return in.begin_object() && in.next_key(key, scratch) && key == "version";
}

Status add_flat_key(std::map<std::string, std::string>& metadata, std::string extras) {
  const auto others = metadata.find(std::string(flat_key));
  if (others != metadata.end() && (!extras.empty() || is_flat_text(others->second))) {
    return Error(Errc::not_representable, "the file needs the metadata key stele for the library's own data")
        .path(std::string(flat_key))
        .found("metadata with the key stele");
  }
  if (!extras.empty()) metadata.emplace(flat_key, std::move(extras));
  return {};
}

namespace {

class ExtrasReader {
 public:
  ExtrasReader(std::string_view text, SnapshotBuilder& builder,
               const std::function<std::uint32_t(std::string_view)>& find, IndexBudget& memory)
      : in_(text), builder_(builder), find_(find), memory_(memory) {}

  Status run() {
    std::string_view key;
    std::string scratch;
    std::uint64_t version = 0;
    if (in_.begin_object() && in_.next_key(key, scratch) && key == "version" && in_.read_u64(version) &&
        version != flat_version) {
      return Error(Errc::unsupported, "the metadata key \"stele\" has an unsupported version")
          .expected("1")
          .found(std::to_string(version));
    }
    if (in_.ok() && version == 0) in_.fail(Errc::malformed, "the key \"version\" first");
    std::vector<std::pair<std::string, std::string>> aliases;
    std::set<std::string> sections;
    while (in_.next_key(key, scratch)) {
      const std::string section(key);
      if (!sections.insert(section).second) {
        in_.fail(Errc::duplicate, "each section once", "a section occurs twice");
        break;
      }
      if (!in_.begin_object()) break;
      std::string path_scratch;
      std::string_view path;
      while (in_.next_key(path, path_scratch)) {
        const std::string name = decoded(path);
        STELE_TRY(entry(section, name, aliases));
        if (!in_.ok()) break;
      }
    }
    if (!in_.finish()) return in_.error().path(std::string(flat_key));
    STELE_TRY(add_versions());
    return add_aliases(aliases);
  }

 private:
  Status entry(const std::string& section, const std::string& path,
               std::vector<std::pair<std::string, std::string>>& aliases) {
    std::string scratch;
    std::string_view text;
    // Memory of one entry in the tables here and in the Snapshot, including growth.
    STELE_TRY(spend(400 + 3 * path.size()));
    if (section == "values") {
      Value value;
      STELE_TRY(json::read_value(in_, value, static_cast<std::size_t>(memory_.left())));
      // Files from before 0.1 may store a value both here and in the format's own place.
      if (const std::uint32_t at = find_(path); at != no_index) {
        const Node& node = builder_.data().nodes[at];
        if (node.kind == NodeKind::value && builder_.data().values[node.index] == value) return {};
      }
      STELE_TRY(unique(path));
      STELE_TRY(spend(heap_of(value)));
      seen_[path] = builder_.value(builder_.intern(path), std::move(value), true);
    } else if (section == "aliases") {
      STELE_TRY(unique(path));
      if (!in_.read_string(text, scratch)) return {};
      STELE_TRY(spend(3 * text.size()));
      aliases.emplace_back(path, decoded(text));
    } else if (section == "empty") {
      STELE_TRY(unique(path));
      if (in_.read_string(text, scratch)) add_empty(path, text);
    } else if (section == "versions") {
      std::uint64_t version = 0;
      if (in_.read_u64(version) && (version == 0 || version > 0xffffffffU)) {
        in_.fail(version == 0 ? Errc::malformed : Errc::out_of_range, "a class version from 1 to 4294967295");
      } else if (in_.ok()) {
        if (!versioned_.insert(path).second) {
          return Error(Errc::duplicate, "a class version is stored twice").path(path);
        }
        versions_.emplace_back(path, static_cast<std::uint32_t>(version));
      }
    } else {
      in_.fail(Errc::unsupported, "a section that this version knows");
    }
    return {};
  }

  Status spend(std::uint64_t bytes) {
    return memory_.take(bytes) ? Status() : index_error("the metadata key \"stele\" exceeds the memory limit");
  }

  Status unique(const std::string& path) {
    if (!seen_.try_emplace(path, no_index).second || find_(path) != no_index) {
      return Error(Errc::duplicate, "two entries of the metadata key \"stele\" have the same name").path(path);
    }
    return {};
  }

  void add_empty(const std::string& path, std::string_view text) {
    for (std::uint8_t k = static_cast<std::uint8_t>(NodeKind::module); k <= static_cast<std::uint8_t>(NodeKind::none);
         ++k) {
      const auto kind = static_cast<NodeKind>(k);
      if (name(kind) != text) continue;
      if (kind == NodeKind::none) {
        builder_.none(builder_.intern(path), true);
      } else {
        seen_[path] = builder_.begin(kind, builder_.intern(path), true);
        builder_.end();
      }
      return;
    }
    in_.fail(Errc::malformed, "a kind of container");
  }

  /// Returns the number of the unnamed type with this version. (The builder's own search is linear.)
  std::uint32_t type_of(std::uint32_t version) {
    auto& types = builder_.data().types;
    const auto [found, fresh] = types_.try_emplace(version, static_cast<std::uint32_t>(types.size()));
    if (fresh) types.push_back({"", version});
    return found->second;
  }

  /// Returns a node for a container whose tensors have names.
  std::uint32_t marker(const std::string& path, std::uint32_t version) {
    const auto [found, fresh] = markers_.try_emplace(path, no_index);
    if (fresh) {
      found->second = builder_.begin(NodeKind::module, builder_.intern(path));
      builder_.end();
      if (version != 0) builder_.data().nodes[found->second].index = type_of(version);
    }
    return found->second;
  }

  /// Applies the class versions after everything that they may refer to has been read.
  Status add_versions() {
    for (const auto& [path, version] : versions_) {
      const auto seen = seen_.find(path);
      const std::uint32_t named = seen != seen_.end() ? seen->second : find_(path);
      if (named == no_index && seen == seen_.end() && !path.empty()) {
        // Names need not show the container, because its class may determine that it exists.
        marker(path, version);
        continue;
      }
      const std::uint32_t node = path.empty() && seen == seen_.end() && named == no_index ? 0 : named;
      if (node == no_index || !is_container(builder_.data().nodes[node].kind)) {
        return Error(Errc::malformed, "a class version belongs to no container").path(path);
      }
      if (builder_.data().nodes[node].kind == NodeKind::module) builder_.data().nodes[node].index = type_of(version);
    }
    return {};
  }

  /// Returns true if another name begins with the path and a dot.
  Result<bool> has_members(const std::string& path) {
    if (names_.empty()) {
      STELE_TRY(spend(builder_.data().nodes.size() * sizeof(std::string_view)));
      for (const Node& node : builder_.data().nodes) {
        if (node.name != nullptr) names_.emplace_back(node.name, node.name_size);
      }
      std::sort(names_.begin(), names_.end());
    }
    const std::string begin = path + '.';
    const auto tensor = std::lower_bound(names_.begin(), names_.end(), std::string_view(begin));
    if (tensor != names_.end() && tensor->starts_with(begin)) return true;
    const auto entry = seen_.lower_bound(begin);
    return entry != seen_.end() && entry->first.starts_with(begin);
  }

  Status add_aliases(const std::vector<std::pair<std::string, std::string>>& aliases) {
    for (const auto& [path, target] : aliases) {
      if (path == target || target.starts_with(path + ".") || path.starts_with(target + ".")) {
        return Error(Errc::malformed, "the alias refers to itself").path(path).found(target);
      }
      std::uint32_t node = find_(target);
      if (node == no_index) {
        if (const auto said = seen_.find(target); said == seen_.end()) {
          STELE_TRY_ASSIGN(const bool known, has_members(target));
          if (!known && !versioned_.contains(target)) {
            return Error(Errc::malformed, "an alias refers to an unknown path").path(path).found(target);
          }
          node = marker(target, 0);
        } else if (node = said->second; node == no_index) {
          // An alias of an alias could form a cycle. The writer never writes one.
          return Error(Errc::malformed, "the alias refers to an alias or to no entry").path(path).found(target);
        }
      }
      builder_.alias(builder_.intern(path), node, true);
    }
    return {};
  }

  json::Reader in_;
  SnapshotBuilder& builder_;
  const std::function<std::uint32_t(std::string_view)>& find_;
  IndexBudget& memory_;
  std::map<std::string, std::uint32_t, std::less<>> seen_;  // name -> node; no_index for aliases and nones
  std::set<std::string, std::less<>> versioned_;
  std::vector<std::pair<std::string, std::uint32_t>> versions_;  // versions by path, in the order of the text
  std::vector<std::string_view> names_;                          // names of nodes, sorted
  std::map<std::string, std::uint32_t> markers_;
  std::map<std::uint32_t, std::uint32_t> types_;  // by version
};

}  // namespace

Status add_flat_extras(std::string_view json, SnapshotBuilder& builder,
                       const std::function<std::uint32_t(std::string_view)>& find, IndexBudget& memory) {
  return ExtrasReader(json, builder, find, memory).run();
}

}  // namespace stele::inline v0::detail
