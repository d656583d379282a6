// Lists of path patterns, as options contain them.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// The patterns of an option. Matching against thousands of plain paths takes no longer than against one.
class Patterns {
 public:
  explicit Patterns(const std::vector<std::string>& patterns);
  bool match(std::string_view path) const;

 private:
  std::unordered_set<std::string_view> plain_;
  std::vector<std::string_view> patterns_;
};

}  // namespace stele::inline v0::detail
