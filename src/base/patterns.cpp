#include "base/patterns.hpp"

#include <algorithm>

#include "stele/pattern.hpp"

namespace stele::inline v0::detail {

Patterns::Patterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (pattern.find_first_of("*?") == std::string::npos) {
      plain_.insert(pattern);
    } else {
      patterns_.emplace_back(pattern);
    }
  }
}

bool Patterns::match(std::string_view path) const {
  return plain_.contains(path) ||
         std::any_of(patterns_.begin(), patterns_.end(), [&](std::string_view p) { return matches(p, path); });
}

}  // namespace stele::inline v0::detail
