// Tensors of Burn up to 0.13: {value, shape}, the elements one by one, without a dtype.
#pragma once

#include <memory>
#include <vector>

#include "cursor.hpp"
#include "named.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Elements that are decoded each time they are asked for, from the last mark before them.
struct Elements {
  static constexpr std::uint64_t step = 16384;  // elements from mark to mark
  DType dtype = DType::none;
  std::uint64_t count = 0;
  std::vector<std::unique_ptr<const Tokens>> marks{};

  Provider provider() const noexcept;
};

/// The list that begins at the next token, to its end. Numbers are of `floats` or `ints`; those that may be either (the
/// bits of f16) are `ints` where `wanted` says so, or where one is negative. Errors: malformed, as Tokens::next.
Result<std::shared_ptr<Elements>> read_elements(Tokens& tokens, DType floats, DType ints, DTypeClass wanted);
/// Of bincode: so many that are not little-endian numbers (bool, integers, f16).
Result<std::shared_ptr<Elements>> read_elements(Cursor& in, std::uint64_t count, DType dtype);

/// By the name of the Rust type; none: another one.
DType dtype_of_rust(std::string_view name) noexcept;

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
