#include "module/migrate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "snapshot/items.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail {
namespace {

std::string join(std::string_view path, std::string_view rest) {
  if (path.empty() || rest.empty()) return std::string(path) + std::string(rest);
  return std::string(path) + '.' + std::string(rest);
}

/// Identifies a leaf that no step has changed.
using LeafKey = std::tuple<const LeafOps*, const void*, std::uint64_t>;
LeafKey key_of(const Item& item) {
  const Provider& p = item.leaf().provider();
  return {p.ops, p.at, p.number};
}
bool same_tensor(const Item& a, const Item& b) {
  const LeafView x = a.leaf();
  const LeafView y = b.leaf();
  return x.dtype() == y.dtype() && std::equal(x.shape().begin(), x.shape().end(), y.shape().begin(), y.shape().end());
}

class Rewriter {
 public:
  Rewriter(Items all, const std::vector<Outdated>& outdated) : all_(std::move(all)), index_(all_.list) {
    for (const Outdated& o : outdated) {
      if (part_at_.try_emplace(o.place, parts_.size()).second) parts_.push_back({&o, {}, {}, {}, {}});
    }
  }

  Result<Snapshot> run() {
    for (std::size_t i = 0; i < all_.list.size(); ++i) {
      if (const std::size_t k = part_of(all_.list[i].path); k != none) parts_[k].old.push_back(i);
    }
    for (Part& part : parts_) STELE_TRY(rewrite(part));
    for (const Item& item : all_.list) {
      const std::size_t k = item.target ? part_of(item.path) : none;
      if (k != none && part_of(*item.target) != k) tie_inside(parts_[k], item);
    }
    return assemble();
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Part {
    const Outdated* outdated;
    std::vector<std::size_t> old;             // indices of its items in all_
    std::vector<Item> now;                    // the hook's result, with paths from the root
    std::map<LeafKey, std::size_t> leaves;    // indices in `now`
    std::set<std::string, std::less<>> tied;  // targets outside the part that are tied again
  };

  /// Returns the index of the outdated module that contains the path.
  std::size_t part_of(std::string_view path) const {
    if (part_at_.contains("")) return 0;  // the root is the only part
    for (std::size_t end = 0;; ++end) {
      end = std::min(path.find('.', end), path.size());
      if (const auto found = part_at_.find(path.substr(0, end)); found != part_at_.end()) return found->second;
      if (end == path.size()) return none;
    }
  }

  /// Returns the items of a part, and the targets outside it of its aliases.
  Items with_targets(const Part& part) const {
    std::vector<std::size_t> wanted = part.old;
    std::set<std::size_t> seen(wanted.begin(), wanted.end());
    std::set<std::string_view> targets;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Item& item = all_.list[wanted[i]];
      if (!item.target || !targets.insert(*item.target).second) continue;
      const auto add = [&](const Item& other) {
        const auto number = static_cast<std::size_t>(&other - all_.list.data());
        if (seen.insert(number).second) wanted.push_back(number);
      };
      if (const auto found = index_.find(*item.target)) add(all_.list[*found]);
      index_.below(*item.target, [&](const Item& other, std::string_view) { add(other); });
    }
    std::sort(wanted.begin(), wanted.end());
    Items items;
    for (const std::size_t i : wanted) items.list.push_back(all_.list[i]);
    items.keep(all_);
    items.metadata = all_.metadata;
    return items;
  }

  Status rewrite(Part& part) {
    const std::string& place = part.outdated->place;
    const auto inside = [&](std::string_view path, const LeafView*) -> std::optional<std::string> {
      if (place.empty() || path == place) return std::string(path.substr(place.size()));
      if (!path.starts_with(place) || path[place.size()] != '.') return std::nullopt;
      return std::string(path.substr(place.size() + 1));
    };
    STELE_TRY_ASSIGN(const Items items, renamed(with_targets(part), inside));
    STELE_TRY_ASSIGN(const Snapshot old, items.build());
    auto made = guarded([&] { return part.outdated->type->rewrite(part.outdated->version, old); });
    if (!made) {
      Error error = std::move(made).error();
      const std::string path = join(part.outdated->path, error.path());
      return std::move(error).path(path);
    }
    STELE_TRY_ASSIGN(Items now, Items::of(*made));
    for (Item& item : now.list) {
      const bool root = item.path.empty() && !item.target && is_container(item.from->nodes[item.node].kind);
      if (root) continue;  // the root declares the old version
      item.path = join(place, item.path);
      if (item.target) item.target = join(place, *item.target);
      part.now.push_back(std::move(item));
    }
    all_.keep(now);
    say_version(part);
    find_leaves(part);
    return {};
  }

  static void find_leaves(Part& part) {
    part.leaves.clear();
    for (std::size_t i = 0; i < part.now.size(); ++i) {
      if (part.now[i].is_tensor()) part.leaves.try_emplace(key_of(part.now[i]), i);
    }
  }

  /// Declares the current version for the module, so that it is not rewritten in another round.
  void say_version(Part& part) {
    SnapshotBuilder builder;
    builder.begin(NodeKind::module, "", false, "", part.outdated->type->version);
    const Snapshot said = builder.finish();
    Item item;
    item.path = part.outdated->place;
    item.from = said.data().get();
    part.now.push_back(std::move(item));
    all_.keepers.push_back(said.data());
  }

  const Item* find(const Part& part, const Item& tensor) const {
    const auto found = part.leaves.find(key_of(tensor));
    return found != part.leaves.end() && same_tensor(part.now[found->second], tensor) ? &part.now[found->second]
                                                                                      : nullptr;
  }

  /// Calls `visit(item, rest)` for each tensor and value at or below `path`; `rest` begins with a dot.
  template <class Visit>
  void contents(std::string_view path, Visit visit) const {
    const auto leaf = [&](const Item& item, std::string_view rest) {
      if (!item.target && !is_container(item.from->nodes[item.node].kind)) visit(item, rest);
    };
    if (const auto found = index_.find(path)) leaf(all_.list[*found], "");
    index_.below(path, leaf);
  }

  /// Returns the path to which a hook has moved the file's tensors at `path`, if they stay together and unchanged.
  std::optional<std::string> left(const Part& part, std::string_view path) const {
    std::optional<std::string> head;
    bool together = true;
    contents(path, [&](const Item& item, std::string_view rest) {
      if (!together || !item.is_tensor()) return;
      const Item* now = find(part, item);
      together = now != nullptr && now->path.ends_with(rest);
      if (!together) return;
      std::string here = now->path.substr(0, now->path.size() - rest.size());
      together = !head || *head == here;
      head = std::move(here);
    });
    return together ? head : std::nullopt;
  }

  /// Returns the new path of the contents that the file has at `path`.
  std::optional<std::string> now(std::string_view path) const {
    const std::size_t k = part_of(path);
    if (k == none || path == parts_[k].outdated->place) return std::string(path);
    return left(parts_[k], path);
  }

  /// Restores an alias in a part whose target is outside; the hook received the target itself.
  void tie_inside(Part& part, const Item& alias) {
    if (!part.tied.insert(*alias.target).second) return;
    const auto here = left(part, *alias.target);
    const auto new_target = now(*alias.target);
    if (!here || !new_target) return;
    const auto below = [&](std::string_view path) {
      return path.starts_with(*here) && (path.size() == here->size() || path[here->size()] == '.');
    };
    for (Item& item : part.now) {
      if (item.target && below(*item.target)) item.target = *new_target + item.target->substr(here->size());
    }
    std::erase_if(part.now, [&](const Item& item) { return below(item.path); });
    Item tied = alias;
    tied.path = *here;
    tied.target = *new_target;
    part.now.push_back(std::move(tied));
    find_leaves(part);
  }

  /// Adds an alias outside the parts whose target is in a part.
  void add_outside(const Item& alias, std::vector<Item>& out) {
    if (const auto target = now(*alias.target)) {
      out.push_back(alias);
      out.back().target = *target;
      return;
    }
    // The hook has changed the target, so the alias gets the contents from the file.
    const Part& part = parts_[part_of(*alias.target)];
    contents(*alias.target, [&](const Item& item, std::string_view rest) {
      const std::string path = alias.path + std::string(rest);
      const Item* left = item.is_tensor() ? find(part, item) : nullptr;
      const auto [owner, first] = owners_.try_emplace(item.path, left != nullptr ? left->path : path);
      out.push_back(item);
      out.back().path = path;
      if (left != nullptr || !first) out.back().target = owner->second;
    });
  }

  Result<Snapshot> assemble() {
    Items result;
    std::vector<bool> placed(parts_.size());
    const auto place = [&](std::size_t k) {
      if (placed[k]) return;
      placed[k] = true;
      std::move(parts_[k].now.begin(), parts_[k].now.end(), std::back_inserter(result.list));
    };
    std::vector<Item> outside;
    for (const Item& item : all_.list) {
      if (part_of(item.path) == none && item.target && part_of(*item.target) != none) add_outside(item, outside);
    }
    for (Item& item : all_.list) {
      if (const std::size_t k = part_of(item.path); k != none) {
        place(k);
      } else if (!item.target || part_of(*item.target) == none) {
        result.list.push_back(std::move(item));
      }
    }
    for (std::size_t k = 0; k < parts_.size(); ++k) place(k);  // parts without items
    std::move(outside.begin(), outside.end(), std::back_inserter(result.list));
    result.keep(all_);
    result.metadata = std::move(all_.metadata);
    return result.build();
  }

  Items all_;
  ItemIndex index_;
  std::vector<Part> parts_;
  std::map<std::string, std::size_t, std::less<>> part_at_;
  std::map<std::string, std::string> owners_;  // new owners of tensors whose remaining names are all outside the parts
};

}  // namespace

Result<Snapshot> rewritten(const Snapshot& snapshot, const std::vector<Outdated>& outdated) {
  STELE_TRY_ASSIGN(Items all, Items::of(snapshot));
  return Rewriter(std::move(all), outdated).run();
}

}  // namespace stele::inline v0::detail
