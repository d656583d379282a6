// JSON as Python's module writes it.
#pragma once

#include <cstddef>
#include <string_view>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::json {

/// Reads a document in which NaN, Infinity and -Infinity may be numbers, which Python's json.dumps() writes although
/// JSON lacks them. Otherwise as read_value() with `plain`.
Result<Value> read_python_document(std::string_view text, std::size_t memory);

}  // namespace stele::inline v0::detail::json
