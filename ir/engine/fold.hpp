// Parts of constant folding: they move elements, and compute with them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/engine/tensors.hpp"

namespace stele::inline v0::detail::ir {

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

/// Rounds reals to the dtype. Integers become reals if the dtype is one of reals.
void round_elements(Constant& constant);
/// Returns a op b for an operator of ONNX; nullopt: overflow, or division by 0. Unknown if one of them is.
using IntegerOperator = std::optional<std::int64_t> (*)(std::int64_t a, std::int64_t b);
std::optional<std::int64_t> sum_of(std::int64_t a, std::int64_t b);
std::optional<std::int64_t> product_of(std::int64_t a, std::int64_t b);

/// Computes an operator of ONNX that has two inputs and no attributes. nullopt: not for these dtypes. Errors:
/// shape_mismatch.
Result<Folded> binary(std::string_view op, const Constant& left, const Constant& right);
/// Computes Mod; `truncated`: with the sign of the dividend.
Result<Folded> remainder(const Constant& left, const Constant& right, bool truncated);
/// Computes an operator of ONNX that has one input and no attributes.
Folded unary(std::string_view op, const Constant& in);

class Folder;
enum class AttributeType : std::uint8_t { integer, integers, tensor };
struct FoldAttribute {
  std::string_view name;  // empty: none
  AttributeType type = AttributeType::integer;
  std::size_t input = 0;  // later versions of the operator have this input instead; 0: none
};
/// An operator of ONNX that can be computed. One with another attribute is not: the table lists all that it may have.
struct FoldOperator {
  std::string_view name;
  std::size_t min_inputs, max_inputs;
  std::uint32_t partial;  // a bit for each input, of which some elements may be unknown
  Result<Folded> (Folder::*run)() const;
  std::array<FoldAttribute, 3> attributes{};
};
std::span<const FoldOperator> fold_operators() noexcept;

}  // namespace stele::inline v0::detail::ir
