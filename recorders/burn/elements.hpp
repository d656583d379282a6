// Tensors of Burn up to 0.13: {value, shape}. Their elements are separate and have no dtype.
#pragma once

#include <memory>
#include <vector>

#include "io/cursor.hpp"
#include "stele/dtype.hpp"
#include "tokens.hpp"

namespace stele::inline v0::detail::burn {

/// Elements that each read decodes from the last mark before them.
struct Elements {
  static constexpr std::uint64_t step = 16384;  // number of elements between two marks
  DType dtype = DType::none;
  std::uint64_t count = 0;
  std::vector<std::unique_ptr<const TokenReader>> marks{};

  Provider provider() const noexcept;
};

/// Reads the list that begins at the next token, to its end. The dtype of the numbers is `floats` or `ints`. Integers
/// that may also be the bits of f16 have dtype `ints` if `wanted` is signed_int or one of them is negative. Errors:
/// malformed, and those of TokenReader::next.
Result<std::shared_ptr<Elements>> read_elements(TokenReader& tokens, DType floats, DType ints, DTypeClass wanted);
/// Reads `count` bincode elements that are not stored as little-endian numbers (bool, integers, f16).
Result<std::shared_ptr<Elements>> read_elements(Cursor& in, std::uint64_t count, DType dtype);

/// Returns the dtype for the name of a Rust type; DType::none if unknown.
DType dtype_of_rust(std::string_view name) noexcept;

}  // namespace stele::inline v0::detail::burn
