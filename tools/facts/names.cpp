// Lists the names of tensors.
#include "facts/names.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include <stele/quantize.hpp>

namespace stele::facts {

namespace {

/// Lists names; lists tensors in tied modules under each name of the module. A few aliases of aliases can name any
/// number of tensors, so the number of names and their text are bounded.
class Names {
 public:
  explicit Names(const Snapshot& snapshot)
      : snapshot_(snapshot),
        nodes_(snapshot.nodes()),
        seen_(snapshot.leaf_count()),
        text_left_((std::size_t{16} << 20) + 256 * nodes_.size()) {}

  Result<std::vector<Named>> list() && {
    if (snapshot_.flat()) {
      STELE_TRY(list_flat());
    } else if (!nodes_.empty()) {
      STELE_TRY(walk(0, {}, 0));
    }
    return std::move(names_);
  }

 private:
  static constexpr unsigned max_depth = 1200;  // above the 512 levels of a record; bounds the stack

  static Error too_many() { return Error(Errc::limit, "modules that are tied to each other name too many tensors"); }

  Status add(std::string name, std::uint32_t leaf) {
    const std::size_t cost = name.size() + sizeof(Named);
    if (cost > text_left_) return too_many();
    text_left_ -= cost;
    names_.push_back({std::move(name), leaf, seen_[leaf]});
    seen_[leaf] = true;
    return {};
  }

  Status walk(std::uint32_t at, const std::string& path, unsigned depth) {
    if (depth > max_depth) return too_many();
    const Node& node = nodes_[at];
    if (node.kind == NodeKind::tensor) return add(path, node.index);
    if (node.kind == NodeKind::alias) return walk(node.index, path, depth + 1);
    for (std::uint32_t child = at + 1; child < node.end; child = std::max(nodes_[child].end, child + 1)) {
      const Node& below = nodes_[child];
      std::string name = path;
      if (!name.empty()) name += '.';
      append_segment(name, below.name != nullptr ? std::string_view(below.name, below.name_size)
                                                 : std::string_view(std::to_string(below.name_size)));
      STELE_TRY(walk(child, name, depth + 1));
    }
    return {};
  }

  /// In flat files, the members of a tied module are the names that begin with the module's name.
  Status list_flat() {
    std::vector<std::uint32_t> modules;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.kind == NodeKind::tensor) STELE_TRY(add(snapshot_.path(i), node.index));
      if (node.kind != NodeKind::alias) continue;
      const Node& target = nodes_[node.index];
      if (target.kind == NodeKind::tensor) {
        STELE_TRY(add(snapshot_.path(i), target.index));
      } else {
        modules.push_back(i);
      }
    }
    if (modules.empty()) return {};
    std::map<std::string, std::uint32_t> by_name;
    for (const Named& named : names_) by_name.emplace(named.name, named.leaf);
    for (const std::uint32_t i : modules) {
      const std::string from = snapshot_.path(nodes_[i].index) + '.';
      const std::string to = snapshot_.path(i) + '.';
      std::vector<std::pair<std::string, std::uint32_t>> more;
      for (auto at = by_name.lower_bound(from); at != by_name.end() && at->first.starts_with(from); ++at) {
        more.emplace_back(to + at->first.substr(from.size()), at->second);
        if (more.back().first.size() > text_left_ || more.size() > text_left_ / sizeof(Named)) return too_many();
      }
      for (auto& [name, leaf] : more) {
        if (by_name.emplace(name, leaf).second) STELE_TRY(add(name, leaf));
      }
    }
    return {};
  }

  const Snapshot& snapshot_;
  std::span<const Node> nodes_;
  std::vector<bool> seen_;
  std::size_t text_left_;
  std::vector<Named> names_;
};

}  // namespace

Result<std::vector<Named>> names_of(const Snapshot& snapshot) { return Names(snapshot).list(); }

std::vector<std::string_view> segments(std::string_view path) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\') {
      ++i;
    } else if (path[i] == '.') {
      parts.push_back(path.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(path.substr(begin));
  return parts;
}

Result<Snapshot> with_numbers(const Snapshot& snapshot) {
  return dequantize_if(snapshot, [](const LeafView& leaf) { return is_block(leaf.dtype()); });
}

Error cancelled() { return Error(Errc::cancelled, "interrupted"); }

Status advanced(const Advance& advance, std::uint64_t bytes) {
  return !advance || advance(bytes) ? Status() : Status(cancelled());
}

Status in_order(std::size_t count, const Work& work) {
  ReadContext context;
  for (std::size_t i = 0; i < count; ++i) STELE_TRY(work(i, context));
  return {};
}

}  // namespace stele::facts
