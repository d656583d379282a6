#include "stele/pattern.hpp"

#include <cstddef>

namespace stele::inline v0 {

bool matches(std::string_view pattern, std::string_view path) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  // If the text after the last star does not match, retries one character later.
  std::size_t star = std::string_view::npos;
  std::size_t retry = 0;
  while (t < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == path[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace stele::inline v0
