// Settings from the environment, and text without its white space.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace stele::inline v0::remote {

/// Returns the value of a variable of the environment; empty if it is not set.
inline std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view white = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(white);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(white) - begin + 1);
}

}  // namespace stele::inline v0::remote
