// Parts of constant folding: they move elements, and compute with them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/tensors.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

/// The outputs of a node; nullopt: they cannot be computed at import.
using Folded = std::optional<std::vector<Constant>>;
Folded one(Constant constant);
/// Returns a list.
Constant of_ints(Ints elements, DType dtype = DType::i64);

/// Returns the product of the extents from an axis on.
std::int64_t stride_of(const Ints& shape, std::size_t from);
/// Returns the elements of `from` at these positions.
Constant taken(const Constant& from, Ints shape, const std::vector<std::size_t>& positions);
/// Errors: shape_mismatch.
Result<Ints> broadcast_shape(const Ints& a, const Ints& b);
/// Returns a tensor that is broadcast to a shape.
Result<Constant> aligned(const Constant& from, const Ints& shape);

/// Returns a number at the precision of a dtype.
double rounded(DType dtype, double value);
/// Returns a op b for an operator of ONNX; nullopt: overflow, or division by 0. Unknown if one of them is.
std::optional<std::int64_t> integer_result(std::string_view op, std::int64_t a, std::int64_t b);
bool is_arithmetic(std::string_view op) noexcept;
bool is_comparison(std::string_view op) noexcept;
/// Errors: shape_mismatch.
Result<Folded> binary(std::string_view op, const Constant& left, const Constant& right);
Result<Folded> unary(std::string_view op, const Constant& in);

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
