// Parts of constant folding: functions that move elements and compute with them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/engine/tensors.hpp"

namespace stele::inline v0::detail::ir {

/// The outputs of a node; nullopt if they cannot be computed at import.
using Folded = std::optional<std::vector<Constant>>;
Folded one(Constant constant);
/// Returns a list as a constant.
Constant of_ints(Ints elements, DType dtype = DType::i64);

/// Returns the product of the extents from axis `from` on.
std::int64_t stride_of(const Ints& shape, std::size_t from);
/// Returns the elements of `from` at the given positions.
Constant taken(const Constant& from, Ints shape, const std::vector<std::size_t>& positions);
/// Returns the shape to which both shapes broadcast. Errors: shape_mismatch.
Result<Ints> broadcast_shape(const Ints& a, const Ints& b);
/// Returns a tensor that is broadcast to a shape.
Result<Constant> aligned(const Constant& from, const Ints& shape);

/// Rounds reals to the dtype. Converts integers to reals if the dtype is a floating-point dtype.
void round_elements(Constant& constant);
/// Computes a op b for an ONNX operator. Returns nullopt for an overflow or a division by 0, and unknown_extent if an
/// operand is unknown_extent.
using IntegerOperator = std::optional<std::int64_t> (*)(std::int64_t a, std::int64_t b);
std::optional<std::int64_t> sum_of(std::int64_t a, std::int64_t b);
std::optional<std::int64_t> product_of(std::int64_t a, std::int64_t b);

/// Computes an ONNX operator that has two inputs and no attributes. Returns nullopt if it does not support the dtypes.
/// Errors: shape_mismatch.
Result<Folded> binary(std::string_view op, const Constant& left, const Constant& right);
/// Computes Mod. If `truncated` is true, the result has the sign of the dividend.
Result<Folded> remainder(const Constant& left, const Constant& right, bool truncated);
/// Computes an ONNX operator that has one input and no attributes.
Folded unary(std::string_view op, const Constant& in);

class Folder;
enum class AttributeType : std::uint8_t { integer, integers, tensor };
struct FoldAttribute {
  std::string_view name;  // empty if unused
  AttributeType type = AttributeType::integer;
  std::size_t input = 0;  // the input that replaces the attribute in later versions; 0 if none
};
/// An ONNX operator that can be computed. `attributes` lists all attributes that it supports; a node with any other
/// attribute is not computed.
struct FoldOperator {
  std::string_view name;
  std::size_t min_inputs, max_inputs;
  std::uint32_t partial;  // a bit for each input whose elements may be partly unknown
  Result<Folded> (Folder::*run)() const;
  std::array<FoldAttribute, 3> attributes{};
};
std::span<const FoldOperator> fold_operators() noexcept;

}  // namespace stele::inline v0::detail::ir
