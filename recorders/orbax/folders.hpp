// Finds the step and the items of a folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail::orbax {

inline constexpr std::string_view step_file = "_CHECKPOINT_METADATA", tree_file = "_METADATA",
                                  strings_file = "_strings.json", commit_file = "commit_success.txt",
                                  json_item_file = "metadata", msgpack_file = "checkpoint", metrics_item = "metrics";

/// A part of a folder's names: their common prefix is "" or ends with a slash.
struct Item {
  std::string name;    // name of the item; empty: the folder is an item
  std::string prefix;  // of a document: the name of its file
};

/// The step that is opened.
struct Step {
  std::string prefix;
  std::vector<Item> trees{};           // items with arrays
  std::vector<Item> documents{};       // items that are one JSON document
  std::vector<std::string> skipped{};  // names of other items
  std::vector<std::string> steps{};    // folders of the root's steps, if it has several
};

/// Returns true if the name belongs to a folder that Orbax has not finished.
bool is_unfinished(std::string_view name) noexcept;

/// Finds the parts of a folder from the names of its files, which are sorted. `committed(prefix)` returns false if a
/// step is incomplete. Errors: not_found (no checkpoint, or no complete step; found() lists the steps).
Result<Step> find_step(const std::vector<std::string>& names, const std::function<bool(const std::string&)>& committed);

}  // namespace stele::inline v0::detail::orbax
