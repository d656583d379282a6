// Patterns for paths, used by filters and load options.
#pragma once

#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// Returns true if `path` matches `pattern`: `*` matches any characters, including dots, and `?` one character; every
/// other character matches itself. `encoder.*` matches every path below encoder, `*.bias` every bias, `*` everything.
/// For each star, takes time linear in the length of `path`.
STELE_EXPORT bool matches(std::string_view pattern, std::string_view path) noexcept;

}  // namespace stele::inline v0
