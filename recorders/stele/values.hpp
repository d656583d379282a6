// Encodes and decodes the values in `.stele` files (stele_reader.hpp, "Values").
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {

Status encode_value(const Value& value, std::vector<std::byte>& out);

/// Decodes exactly `bytes`. Subtracts the heap memory used from `budget`. Errors: malformed, limit.
Status decode_value(std::span<const std::byte> bytes, Value& out, std::uint64_t& budget);

}  // namespace stele::inline v0::detail
