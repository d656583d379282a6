// Choosing and renaming.
#include <algorithm>

#include <re2/re2.h>

#include "items.hpp"
#include "stele/transform.hpp"

namespace stele {
inline namespace v0 {

using detail::Item;
using detail::Items;

namespace {

Result<Snapshot> with_new_paths(const Snapshot& snapshot, const detail::NewPath& new_path) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const Items items, detail::renamed(Items(snapshot), new_path));
    return items.build();
  });
}

bool is_below(std::string_view path, std::string_view container) {
  return path.size() > container.size() && path.starts_with(container) && path[container.size()] == '.';
}

}  // namespace

Result<Snapshot> filter(const Snapshot& snapshot, const Filter& by) {
  std::vector<bool> matched(by.include.size());
  auto filtered = with_new_paths(snapshot, [&](std::string_view path, const LeafView* leaf) {
    bool wanted = by.include.empty();
    for (std::size_t i = 0; i < by.include.size(); ++i) {
      if (!matches(by.include[i], path)) continue;
      matched[i] = wanted = true;
    }
    const auto excluded = [&](const std::string& pattern) { return matches(pattern, path); };
    wanted = wanted && std::none_of(by.exclude.begin(), by.exclude.end(), excluded) && (!by.keep || by.keep(path, leaf));
    return wanted ? std::optional<std::string>(path) : std::nullopt;
  });
  const auto idle = std::find(matched.begin(), matched.end(), false);
  if (!filtered || idle == matched.end()) return filtered;
  return Error(Errc::not_found, "a filter's pattern matches nothing")
      .path(by.include[static_cast<std::size_t>(idle - matched.begin())]);
}

Result<Snapshot> rename(const Snapshot& snapshot, std::span<const Rename> rules) {
  std::vector<std::unique_ptr<RE2>> compiled;
  for (const Rename& rule : rules) {
    RE2::Options options;
    options.set_log_errors(false);
    options.set_never_capture(false);
    compiled.push_back(std::make_unique<RE2>(rule.pattern, options));
    const auto bad = [&](const char* text, const std::string& found) {
      return Error(Errc::invalid_argument, text).path(rule.pattern).found(found);
    };
    if (!compiled.back()->ok()) return bad("a pattern that is no regular expression", compiled.back()->error());
    std::string why;
    if (!compiled.back()->CheckRewriteString(rule.replacement, &why)) return bad("a replacement that does not fit", why);
  }
  return with_new_paths(snapshot, [&](std::string_view path, const LeafView*) {
    std::string text(path);
    for (std::size_t i = 0; i < rules.size(); ++i) RE2::GlobalReplace(&text, *compiled[i], rules[i].replacement);
    return std::optional(std::move(text));
  });
}

Result<Snapshot> part(const Snapshot& snapshot, std::string_view path) {
  bool found = false;
  auto result = with_new_paths(snapshot, [&](std::string_view name, const LeafView*) -> std::optional<std::string> {
    const bool below = is_below(name, path);
    if (!below && name != path) return std::nullopt;
    found = true;
    return std::string(below ? name.substr(path.size() + 1) : std::string_view());
  });
  if (!result || found) return result;
  return Error(Errc::not_found, "nothing has this name").path(std::string(path));
}

Result<Snapshot> with_prefix(const Snapshot& snapshot, std::string_view path) {
  return with_new_paths(snapshot, [&](std::string_view name, const LeafView*) {
    return std::optional(name.empty() ? std::string(path) : std::string(path) + '.' + std::string(name));
  });
}

Result<Snapshot> merge(std::span<const Snapshot> snapshots) {
  return detail::guarded([&]() -> Result<Snapshot> {
    Items all;
    for (const Snapshot& snapshot : snapshots) {
      Items items(snapshot);
      // The version of a root is that of one of several.
      std::erase_if(items.list, [](const Item& item) { return item.path.empty() && !item.is_tensor(); });
      std::move(items.list.begin(), items.list.end(), std::back_inserter(all.list));
      all.in_order = all.in_order || items.in_order;
      std::move(items.keepers.begin(), items.keepers.end(), std::back_inserter(all.keepers));
      for (const auto& [key, text] : items.metadata) {
        const auto [same, fresh] = all.metadata.emplace(key, text);
        if (fresh || same->second == text) continue;
        return Error(Errc::duplicate, "metadata of one key with different texts")
            .path(key)
            .expected(same->second)
            .found(text);
      }
    }
    return all.build();
  });
}

Result<Snapshot> flatten(const Snapshot& snapshot) {
  return detail::guarded([&] { return Items(snapshot).build(); });
}

}  // namespace v0
}  // namespace stele
