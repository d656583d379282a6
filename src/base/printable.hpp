// Text for people and terminals, from strings of a file, which may have any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Returns the length of the UTF-8 sequence that `text` begins with, and its code point; 0 if it is not valid. `text`
/// must not be empty.
STELE_EXPORT std::pair<std::size_t, unsigned> code_point(std::string_view text);
/// Returns true for characters that change what a terminal shows around them: controls of C0 and C1, line and paragraph
/// separators, and the bidirectional controls of Unicode (UAX #9).
STELE_EXPORT bool is_obeyed(unsigned code);
/// Returns `text` with escapes instead of such characters and of bytes that are not UTF-8: `\xHH`, `\uHHHH`.
STELE_EXPORT std::string printable(std::string_view text);

}  // namespace stele::inline v0::detail
