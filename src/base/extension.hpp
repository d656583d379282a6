// Extensions of paths. Programs and users write them in upper or lower case.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace stele::inline v0::detail {

/// Returns true if the path ends with `extension`, which is in lower case; ignores the case of the path's ASCII
/// letters.
inline bool has_extension(std::string_view path, std::string_view extension) noexcept {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return path.size() >= extension.size() &&
         std::equal(extension.begin(), extension.end(), path.end() - static_cast<std::ptrdiff_t>(extension.size()),
                    [&](char b, char a) { return same(a, b); });
}

}  // namespace stele::inline v0::detail
