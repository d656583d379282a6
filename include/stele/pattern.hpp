// Patterns for paths, as filters and load options take them.
#pragma once

#include <string_view>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// Whether `path` is what `pattern` means: `*` stands for any run of characters, dots too, and `?` for one; everything
/// else for itself. `encoder.*` is all that is below encoder, `*.bias` every bias, `*` everything. Linear in the length
/// of `path` for each star.
STELE_EXPORT bool matches(std::string_view pattern, std::string_view path) noexcept;

}  // namespace v0
}  // namespace stele
