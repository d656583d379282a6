// Values as `.stele` files hold them (stele_reader.hpp, "Values").
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Deepest nesting of lists and maps; the same bound as for JSON, so that a Value moves between the two.
inline constexpr int max_value_depth = 64;

Status encode_value(const Value& value, std::vector<std::byte>& out);

/// Decodes exactly `bytes`. `budget` is the heap memory that may still be taken; what is taken is subtracted.
/// Errors: malformed, limit.
Status decode_value(std::span<const std::byte> bytes, Value& out, std::uint64_t& budget);

}  // namespace detail
}  // namespace v0
}  // namespace stele
