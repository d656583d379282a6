// Elements of a tensor as text.
#pragma once

#include <cstdint>
#include <string>

#include "model.hpp"

namespace stele::command {

/// Returns one element as text: the shortest digits that read back to the same bits of its dtype. `at` points to the
/// byte with its first bit, `half` selects the upper half of it for 4-bit dtypes.
std::string element_text(DType dtype, const std::byte* at, bool half = false);

/// Prints the elements of `what`, a name or NAME[slice] with a slice as in NumPy: numbers, `begin:end:step`, `...`.
/// Errors: not_found, invalid_argument (the slice), unsupported (strings and other dtypes without numbers).
/// With --json, they are members of `document`.
Status print_elements(const Snapshot& snapshot, const std::string& what, std::uint64_t max_elements, Document& document,
                      Terminal& terminal);

}  // namespace stele::command
