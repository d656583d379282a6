// Finds the step and the items of a folder.
#include "folders.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "ocdbt.hpp"

namespace stele::inline v0::detail::orbax {
namespace {

/// Returns true for the folder of a process's database, whose content is also in the item's database.
bool is_process(std::string_view folder) { return folder.starts_with("ocdbt.process_"); }

/// The sorted names of a folder's files.
class Names {
 public:
  explicit Names(const std::vector<std::string>& names) : names_(names) {}

  bool has(const std::string& name) const { return std::binary_search(names_.begin(), names_.end(), name); }
  bool has(const std::string& prefix, std::string_view name) const { return has(prefix + std::string(name)); }
  /// Returns the folders directly below a prefix.
  std::set<std::string> folders(const std::string& prefix) const {
    std::set<std::string> found;
    auto at = std::lower_bound(names_.begin(), names_.end(), prefix);
    while (at != names_.end() && at->starts_with(prefix)) {
      const std::size_t slash = at->find('/', prefix.size());
      if (slash == at->npos) {
        ++at;
        continue;
      }
      std::string folder = at->substr(prefix.size(), slash - prefix.size());
      // '0' is the character after '/'.
      at = std::lower_bound(at, names_.end(), prefix + folder + '0');
      found.insert(std::move(folder));
    }
    return found;
  }

  bool is_tree(const std::string& prefix) const { return has(prefix, tree_file) || has(prefix, ocdbt::manifest_name); }
  bool is_step(const std::string& prefix) const {
    if (has(prefix, step_file) || is_tree(prefix)) return true;
    const auto items = folders(prefix);
    return std::any_of(items.begin(), items.end(),
                       [&](const std::string& item) { return !is_process(item) && is_tree(prefix + item + '/'); });
  }

 private:
  const std::vector<std::string>& names_;
};

/// Returns the number at the end of a step's name: "10", "step_10", "0010".
std::optional<std::uint64_t> number_of(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  std::string_view digits = name.substr(last == name.npos ? 0 : last + 1);
  if (digits.empty() || digits.size() > 18) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : digits) number = 10 * number + static_cast<std::uint64_t>(c - '0');
  return number;
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t max_names = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), max_names); ++i) text += (i != 0 ? ", " : "") + names[i];
  return names.size() > max_names ? text + ", …" : text;
}

}  // namespace

bool is_unfinished(std::string_view name) noexcept { return name.find(".orbax-checkpoint-tmp") != name.npos; }

Result<Step> find_step(const std::vector<std::string>& names,
                       const std::function<bool(const std::string&)>& committed) {
  const Names all(names);
  Step step;
  if (!all.is_step("")) {
    std::map<std::uint64_t, std::string> complete;
    for (const std::string& folder : all.folders("")) {
      const auto number = number_of(folder);
      if (is_unfinished(folder) || !number || !all.is_step(folder + '/')) continue;
      step.steps.push_back(folder);
      if (!committed(folder + '/')) continue;
      const auto [known, fresh] = complete.try_emplace(*number, folder);
      if (!fresh) {
        return Error(Errc::malformed, "two folders are the same step").found(known->second + " and " + folder);
      }
    }
    if (complete.empty()) {
      return Error(Errc::not_found, "the folder has no complete checkpoint of Orbax").found(list_of(step.steps));
    }
    step.prefix = complete.rbegin()->second + '/';
  }
  if (all.is_tree(step.prefix)) {
    step.trees.push_back({"", step.prefix});
    return step;
  }
  for (const std::string& item : all.folders(step.prefix)) {
    const std::string prefix = step.prefix + item + '/';
    if (is_unfinished(item) || is_process(item)) continue;
    if (all.is_tree(prefix)) {
      step.trees.push_back({item, prefix});
    } else if (all.has(prefix, json_item_file)) {
      step.documents.push_back({item, prefix + std::string(json_item_file)});
    } else if (item == metrics_item && all.has(prefix, metrics_item)) {
      step.documents.push_back({item, prefix + std::string(metrics_item)});
    } else {
      step.skipped.push_back(item);
    }
  }
  return step;
}

}  // namespace stele::inline v0::detail::orbax
