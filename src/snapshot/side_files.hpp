// The files of a model's folder that are not its tensors: configurations, tokenizers, licences.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stele/bundle.hpp"

namespace stele::inline v0::detail {

struct SideFiles {
  std::shared_ptr<const Bundle> folder;
  std::vector<std::string> names;  // sorted
};

/// Returns the files of a model's folder that do not have weights. `is_read`: has the weights that are read. Lists
/// files that no save copies in `left_out`: other weights, and files of git and of downloads. Errors: those of
/// Bundle::names().
Result<std::shared_ptr<const SideFiles>> side_files(const std::shared_ptr<const Bundle>& folder,
                                                    const std::function<bool(std::string_view)>& is_read,
                                                    std::vector<std::string>& left_out);

/// Capabilities::keeps returns true for it if a save writes the files again.
inline constexpr std::string_view side_files_part = "the files beside the weights";

}  // namespace stele::inline v0::detail
