// The files of a model's folder that are not its tensors: configurations, tokenizers, licences.
#pragma once

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

/// Capabilities::keeps returns true for it if a save writes the files again.
inline constexpr std::string_view side_files_part = "the files beside the weights";

}  // namespace stele::inline v0::detail
