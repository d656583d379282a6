// Operands of the operators and functions in expressions.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ir/rules/expression.hpp"

namespace stele::inline v0::detail::ir {

Error bad_operands(std::string_view what, const ExpressionValue& a, const ExpressionValue& b = {});

/// Computes + - * / or %. Integers round down. The result is unknown if an operand is unknown. Errors: invalid_argument
/// (overflow, division by 0).
Result<std::optional<std::int64_t>> arithmetic(char op, std::optional<std::int64_t> a, std::optional<std::int64_t> b);
Result<double> arithmetic(char op, double a, double b);

/// Returns a list, or one value as a list with one element. Returns nullopt for a value of another type.
template <class T>
std::optional<std::vector<T>> list_of(const ExpressionValue& value) {
  if (const auto* list = std::get_if<std::vector<T>>(&value)) return *list;
  if (const auto* one = std::get_if<T>(&value)) return std::vector<T>{*one};
  if constexpr (std::is_same_v<T, double>) {
    if (const auto ints = list_of<std::int64_t>(value)) return Reals(ints->begin(), ints->end());
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (const auto* b = std::get_if<bool>(&value)) return Ints{*b ? 1 : 0};
    if (const auto* list = std::get_if<Reals>(&value); list != nullptr && list->empty()) return Ints{};
  }
  // An empty list matches any type.
  if (const auto* list = std::get_if<Ints>(&value); list != nullptr && list->empty()) return std::vector<T>();
  return std::nullopt;
}

/// Returns a list of integers, or one integer as a list. Returns nullopt for a value of another type.
std::optional<OpenInts> open_list_of(const ExpressionValue& value);

/// Returns the elements of all parts as one list. Integers become doubles if the list has doubles. The result is
/// unknown if a part is unknown.
Result<ExpressionValue> joined(const std::vector<ExpressionValue>& parts);

/// Implement resize_positions(numbers, names) and resize_weights(numbers, names): for each element of the result,
/// return the positions on an axis from which it is interpolated, and their weights. numbers: [extent, extent of the
/// result, scale, start and end of roi, cubic_coeff_a, exclude_outside, antialias]; names: [mode,
/// coordinate_transformation_mode, nearest_mode], as in ONNX's Resize. Errors: invalid_argument, limit.
Result<ExpressionValue> resize_positions(const std::vector<ExpressionValue>& operands);
Result<ExpressionValue> resize_weights(const std::vector<ExpressionValue>& operands);

/// Calls a function of plain values. The result is unknown if an operand is unknown. Errors: missing (the function does
/// not exist), and those of the function.
Result<ExpressionValue> call_function(std::string_view name, const std::vector<ExpressionValue>& operands);

}  // namespace stele::inline v0::detail::ir
