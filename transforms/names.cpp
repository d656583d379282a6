// Functions that select and rename tensors.
#include <algorithm>
#include <iterator>
#include <map>

#include <re2/re2.h>

#include "snapshot/items.hpp"
#include "stele/transform.hpp"

namespace stele::inline v0 {

using detail::Item;
using detail::Items;
using detail::with_new_paths;

Result<Snapshot> filter(const Snapshot& snapshot, const Filter& by) {
  std::vector<bool> matched(by.include.size());
  auto filtered = with_new_paths(snapshot, [&](std::string_view path, const LeafView* leaf) {
    bool wanted = by.include.empty();
    for (std::size_t i = 0; i < by.include.size(); ++i) {
      if (!matches(by.include[i], path)) continue;
      matched[i] = wanted = true;
    }
    const auto excluded = [&](const std::string& pattern) { return matches(pattern, path); };
    wanted =
        wanted && std::none_of(by.exclude.begin(), by.exclude.end(), excluded) && (!by.keep || by.keep(path, leaf));
    return wanted ? std::optional<std::string>(path) : std::nullopt;
  });
  const auto idle = std::find(matched.begin(), matched.end(), false);
  if (!filtered || idle == matched.end()) return filtered;
  return Error(Errc::not_found, "the filter's pattern matches nothing")
      .path(by.include[static_cast<std::size_t>(idle - matched.begin())]);
}

Result<Snapshot> rename(const Snapshot& snapshot, std::span<const Rename> rules) {
  std::vector<std::unique_ptr<RE2>> compiled;
  for (const Rename& rule : rules) {
    RE2::Options options;
    options.set_log_errors(false);
    options.set_never_capture(false);
    compiled.push_back(std::make_unique<RE2>(rule.pattern, options));
    const auto bad = [&](const char* why, const std::string& found) {
      return Error(Errc::invalid_argument, why).path(rule.pattern).found(found);
    };
    if (!compiled.back()->ok()) return bad("the pattern is not a valid regular expression", compiled.back()->error());
    std::string error;
    if (!compiled.back()->CheckRewriteString(rule.replacement, &error))
      return bad("the replacement does not fit the pattern", error);
  }
  return with_new_paths(snapshot, [&](std::string_view path, const LeafView*) {
    std::string text(path);
    for (std::size_t i = 0; i < rules.size(); ++i) RE2::GlobalReplace(&text, *compiled[i], rules[i].replacement);
    return std::optional(std::move(text));
  });
}

Result<Snapshot> part(const Snapshot& snapshot, std::string_view path) { return detail::part_of(snapshot, path); }

Result<Snapshot> with_prefix(const Snapshot& snapshot, std::string_view path) {
  return with_new_paths(snapshot, [&](std::string_view name, const LeafView*) {
    return std::optional(name.empty() ? std::string(path) : std::string(path) + '.' + std::string(name));
  });
}

namespace {

using detail::Properties;

/// Merges `more` into `all`. If a key has different values, `more` overrides `all` if `replace` is true; otherwise they
/// are an error.
Status join(std::shared_ptr<const Properties>& all, const std::shared_ptr<const Properties>& more, bool replace) {
  if (more == nullptr || more == all) return {};
  const Value::Map* const from = more->values.as_map();
  if (all == nullptr || all->values.as_map() == nullptr) all = more;
  if (all == more || from == nullptr) return {};
  Properties joined = *all;
  Value::Map& to = *joined.values.as_map();
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < all->values.as_map()->size(); ++i) places.emplace((*all->values.as_map())[i].first, i);
  for (const auto& [key, value] : *from) {
    const auto same = places.find(key);
    if (same != places.end() && !replace && !(to[same->second].second == value)) {
      return Error(Errc::duplicate, "the snapshots have different properties for one key").path(key);
    }
    if (same == places.end()) {
      to.emplace_back(key, value);
    } else {
      to[same->second].second = value;
    }
    joined.types.erase(key);
    if (const auto type = more->types.find(key); type != more->types.end()) joined.types.insert(*type);
  }
  all = std::make_shared<const Properties>(std::move(joined));
  return {};
}

}  // namespace

Result<Snapshot> merge(std::span<const Snapshot> snapshots) {
  return detail::guarded([&]() -> Result<Snapshot> {
    Items all;
    for (const Snapshot& snapshot : snapshots) {
      STELE_TRY_ASSIGN(Items items, Items::of(snapshot));
      // Drops the roots: the version of one root does not apply to the merged root.
      std::erase_if(items.list, [](const Item& item) { return item.path.empty() && !item.is_tensor(); });
      std::move(items.list.begin(), items.list.end(), std::back_inserter(all.list));
      all.keep(items);
      STELE_TRY(join(all.properties, items.properties, false));
      for (const auto& [key, text] : items.metadata) {
        const auto [same, fresh] = all.metadata.emplace(key, text);
        if (fresh || same->second == text) continue;
        return Error(Errc::duplicate, "the snapshots have different metadata for one key")
            .path(key)
            .expected(same->second)
            .found(text);
      }
    }
    return all.build();
  });
}

namespace {

/// Overlays the items of one snapshot on those of earlier ones.
class Overlay {
 public:
  explicit Overlay(Items& lower) : lower_(lower), earlier_(lower.list), index_(earlier_) {
    tied_ = std::any_of(earlier_.begin(), earlier_.end(), [](const Item& item) { return item.target.has_value(); });
  }

  Status add(Items upper) {
    for (Item& item : upper.list) STELE_TRY(item.target ? tie(item) : put(item));
    lower_.keep(upper);
    for (auto& [key, text] : upper.metadata) lower_.metadata.insert_or_assign(key, std::move(text));
    STELE_TRY(join(lower_.properties, upper.properties, true));
    // An absent optional becomes present if an item exists below it.
    const std::vector<Item> list = lower_.list;
    const detail::ItemIndex index(list);
    std::erase_if(lower_.list, [&](const Item& item) {
      bool filled = false;
      if (is_none(item)) index.below(item.path, [&](const Item&, std::string_view) { filled = true; });
      return filled;
    });
    return {};
  }

 private:
  static bool is_none(const Item& item) { return !item.target && item.from->nodes[item.node].kind == NodeKind::none; }
  static Error refused(const char* why, const std::string& path, const std::string& other) {
    return Error(Errc::invalid_argument, why).path(path).found(other);
  }

  /// Returns the path's name in the earlier snapshots, or the name that they would use: the target of a tie replaces
  /// its alias.
  std::string owner(std::string path) const {
    if (!tied_) return path;
    std::size_t steps = 0;  // bounds the loop: a file may contain circular ties
    for (std::size_t end = 0; end != path.size() && steps <= earlier_.size();) {
      end = std::min(path.find('.', end == 0 ? 0 : end + 1), path.size());
      const auto found = index_.find(std::string_view(path).substr(0, end));
      if (!found || !earlier_[*found].target) continue;
      path = *earlier_[*found].target + path.substr(end);
      end = 0;  // starts again, because the target may be below an alias
      ++steps;
    }
    return path;
  }

  Status put(Item& item) {
    const std::string path = owner(item.path);
    const auto earlier = index_.find(path);
    if (detail::is_container(item.from->nodes[item.node].kind) || is_none(item)) {
      if (!earlier) {
        lower_.list.push_back(std::move(item));
      } else if (is_none(earlier_[*earlier])) {
        lower_.list[*earlier] = std::move(item);
      }
      return {};
    }
    const auto [other, first] = put_.try_emplace(path, item.path);
    if (!first) return refused("two names of a tied tensor get different replacements", item.path, other->second);
    item.path = path;
    if (earlier) {
      lower_.list[*earlier] = std::move(item);
    } else {
      lower_.list.push_back(std::move(item));
    }
    return {};
  }

  Status tie(Item& item) {
    const std::string path = owner(item.path);
    const std::string target = owner(*item.target);
    if (path == target) return {};
    bool apart = index_.find(path).has_value();
    index_.below(path, [&](const Item&, std::string_view) { apart = true; });
    if (apart)
      return refused("the snapshot ties names that are separate in an earlier snapshot", item.path, *item.target);
    item.path = path;
    item.target = target;
    lower_.list.push_back(std::move(item));
    return {};
  }

  Items& lower_;
  const std::vector<Item> earlier_;
  detail::ItemIndex index_;
  bool tied_ = false;
  std::map<std::string, std::string> put_;  // path -> the name in the upper snapshot
};

}  // namespace

Result<Snapshot> overlay(std::span<const Snapshot> snapshots) {
  return detail::guarded([&]() -> Result<Snapshot> {
    Items all;
    for (const Snapshot& snapshot : snapshots) {
      STELE_TRY_ASSIGN(Items items, Items::of(snapshot));
      STELE_TRY(Overlay(all).add(std::move(items)));
    }
    return all.build();
  });
}

Result<Snapshot> flatten(const Snapshot& snapshot) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const Items items, Items::of(snapshot));
    return items.build();
  });
}

}  // namespace stele::inline v0
