#include "ir/engine/node_scope.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "dl4j/arrays_fb.hpp"
#include "encodings/onnx/fields.hpp"
#include "ir/rules/operands.hpp"

namespace stele::inline v0::detail::ir {

using Value = ExpressionValue;

Result<const Value*> NodeScope::find(std::string_view name) const {
  const std::string key(name);
  if (const auto found = names_.find(key); found != names_.end()) return &found->second;
  const auto define = std::find_if(declaration_.defines.begin(), declaration_.defines.end(),
                                   [&](const auto& d) { return d.name == name; });
  if (define == declaration_.defines.end()) return Error(Errc::missing, "the name is not defined").path(key);
  names_[key] = Value();  // a definition that refers to itself is unknown
  STELE_TRY_ASSIGN(Value value, define->value->evaluate(*this));
  Value& kept = names_[key] = std::move(value);
  return &kept;
}

namespace {

/// Returns the elements of a list of integers, as far as they are known.
Value elements_of(const TensorInfo& info) {
  if (info.constant) return std::visit([](const auto& list) { return Value(list); }, info.constant->elements);
  if (info.partial && info.partial->ints() != nullptr) return value_of_extents(*info.partial->ints());
  if (!info.shape || info.shape->size() != 1) return Value();
  const std::int64_t count = info.shape->front();
  if (count < 0 || count > max_rank) return Value();  // tracks only lists that can be extents
  return value_of(OpenInts(static_cast<std::size_t>(count)));
}

/// Returns the elements of a list or a number of i32, i64 or bool, as far as they are known. Bools are known or unknown
/// as a whole.
Value integers_of(const TensorInfo& info) {
  const bool flags = info.dtype == DType::boolean;
  if (info.dtype != DType::i32 && info.dtype != DType::i64 && !flags) return Value();
  if (!info.shape || info.shape->size() > 1) return Value();
  if (info.constant || !flags) {
    if (info.shape->empty() && !info.constant && !info.partial) return Value(OpenInts{std::nullopt});
    return elements_of(info);
  }
  return Value();
}

/// Returns the lowest or highest number of a dtype, or nullopt if DL4J does not have the dtype.
std::optional<double> limit_of(DType dtype, bool lowest) {
  const int bits = static_cast<int>(8 * element_size(dtype));
  switch (dtype_class(dtype)) {
    case DTypeClass::signed_int:
      return lowest ? -std::ldexp(1, bits - 1) : std::ldexp(1, bits - 1) - 1;
    case DTypeClass::unsigned_int:
      return lowest ? 0 : std::ldexp(1, bits) - 1;
    case DTypeClass::boolean:
      return lowest ? 0 : 1;
    default:
      break;
  }
  constexpr std::array<std::pair<DType, double>, 4> largest = {{{DType::f16, 65504},
                                                                {DType::bf16, 0x1.fep127},
                                                                {DType::f32, std::numeric_limits<float>::max()},
                                                                {DType::f64, std::numeric_limits<double>::max()}}};
  const auto found = std::find_if(largest.begin(), largest.end(), [&](const auto& row) { return row.first == dtype; });
  if (found == largest.end()) return std::nullopt;
  return lowest ? -found->second : found->second;
}

}  // namespace

Result<std::optional<Value>> NodeScope::call(std::string_view function, std::span<const Value> operands) const {
  if (function == "constant") return make_constant(operands);
  if (function == "dl4j_dtype" && operands.size() == 1) {
    const auto* code = std::get_if<std::int64_t>(&operands[0]);
    const DType dtype = code != nullptr ? onnx::dtype_of(static_cast<std::uint64_t>(*code)) : DType::none;
    if (dtype == DType::none)
      return not_covered("a dtype is unknown, or DL4J has no such dtype").found(to_text(operands[0]));
    return std::optional(Value(static_cast<std::int64_t>(samediff::type_of(dtype))));
  }
  if ((function == "lowest" || function == "highest") && operands.size() == 1) {
    const auto* code = std::get_if<std::int64_t>(&operands[0]);
    const DType dtype = code != nullptr ? onnx::dtype_of(static_cast<std::uint64_t>(*code)) : DType::none;
    const auto limit = limit_of(dtype, function == "lowest");
    if (!limit) return not_covered("a dtype is unknown, or DL4J has no such dtype").found(to_text(operands[0]));
    return std::optional(Value(*limit));
  }
  if (function == "onnx_dtype" && operands.size() == 1) {
    const auto* number = std::get_if<std::int64_t>(&operands[0]);
    const auto dtype = samediff::dtype_of(static_cast<stele_fb::Type>(number != nullptr ? *number : -1));
    if (!dtype || onnx::code_of(*dtype) == 0)
      return not_covered("a dtype is unknown, or ONNX has no such dtype").found(to_text(operands[0]));
    return std::optional(Value(std::int64_t{onnx::code_of(*dtype)}));
  }
  if (function == "joined_extent" && operands.size() == 2) return joined_extent(operands);
  if (function == "broadcast" && operands.size() == 1) {
    STELE_TRY_ASSIGN(Value shape, broadcast(operands[0]));
    return std::optional<Value>(std::move(shape));
  }
  const bool query = function == "rank" || function == "shape" || function == "dtype" || function == "value" ||
                     function == "elements" || function == "integers" || function == "traced";
  if (!query || operands.size() != 1) return std::optional<Value>();
  const auto* tensor = std::get_if<TensorName>(&operands[0]);
  if (tensor == nullptr) {
    return Error(Errc::invalid_argument, "the operand is not a tensor").path(function).found(to_text(operands[0]));
  }
  const TensorInfo* const info = to_.find(tensor->name);
  if (info == nullptr) return std::optional(Value());
  if (function == "dtype") {
    if (info->dtype == DType::none) return std::optional(Value());
    return std::optional(Value(std::int64_t{onnx::code_of(info->dtype)}));
  }
  if (function == "value") {
    if (!info->constant) return std::optional(Value());
    return std::optional(std::visit([](const auto& list) { return Value(list); }, info->constant->elements));
  }
  if (function == "traced") return std::optional(Value(info->constant.has_value() || info->partial.has_value()));
  if (function == "elements") return std::optional(elements_of(*info));
  if (function == "integers") return std::optional(integers_of(*info));
  if (!info->shape) return std::optional(Value());
  if (function == "rank") return std::optional(Value(static_cast<std::int64_t>(info->shape->size())));
  return std::optional(value_of_extents(*info->shape));
}

Result<Value> NodeScope::call(std::string_view function, const Value& operand) const {
  STELE_TRY_ASSIGN(auto value, call(function, std::span(&operand, 1)));
  return value ? *std::move(value) : Value();
}

Result<std::optional<Value>> NodeScope::joined_extent(std::span<const Value> operands) const {
  const auto* tensors = std::get_if<Tensors>(&operands[0]);
  const auto* axis = std::get_if<std::int64_t>(&operands[1]);
  if (tensors == nullptr || axis == nullptr) return std::optional(Value());
  std::int64_t total = 0;
  for (const TensorName& tensor : *tensors) {
    const TensorInfo* const info = to_.find(tensor.name);
    if (info == nullptr || !info->shape || *axis < 0 || *axis >= static_cast<std::int64_t>(info->shape->size())) {
      return std::optional(Value());
    }
    const std::int64_t extent = (*info->shape)[static_cast<std::size_t>(*axis)];
    if (extent == unknown_extent || __builtin_add_overflow(total, extent, &total))
      return std::optional(Value(Unknown()));
  }
  return std::optional(Value(total));
}

/// Implements broadcast(tensors): returns the shape of an elementwise operation.
Result<Value> NodeScope::broadcast(const Value& operand) const {
  const auto* tensors = std::get_if<Tensors>(&operand);
  if (tensors == nullptr) return Value();
  Value shape = Ints();
  for (const TensorName& tensor : *tensors) {
    STELE_TRY_ASSIGN(const Value more, call("shape", Value(tensor)));
    STELE_TRY_ASSIGN(const Value both, call_function("broadcast", {shape, more}));
    if (!known(both)) return Value();
    shape = both;
  }
  return shape;
}

/// Implements constant(value, dtype [, shape]): makes a tensor of the elements. A value that is not a list makes a
/// scalar.
Result<std::optional<Value>> NodeScope::make_constant(std::span<const Value> operands) const {
  if (operands.size() != 2 && operands.size() != 3) return std::optional<Value>();
  const auto* code = std::get_if<std::int64_t>(&operands[1]);
  Constant constant{.dtype = code != nullptr ? onnx::dtype_of(static_cast<std::uint64_t>(*code)) : DType::none};
  const DTypeClass type = dtype_class(constant.dtype);
  const bool integers =
      type == DTypeClass::signed_int || type == DTypeClass::unsigned_int || type == DTypeClass::boolean;
  const auto fill = [&](const auto& list, bool scalar) {
    if (!scalar) constant.shape = {static_cast<std::int64_t>(list.size())};
    if (integers) {
      Ints& out = constant.elements.emplace<Ints>();
      for (const auto e : list) {
        if constexpr (std::is_same_v<decltype(e), const double>) {
          if (e != std::trunc(e) || !(std::abs(e) < 0x1p62)) return false;
        }
        out.push_back(static_cast<std::int64_t>(e));
      }
    } else {
      constant.elements = Reals(list.begin(), list.end());
    }
    return true;
  };
  bool fits = true;
  if (const auto* i = std::get_if<std::int64_t>(&operands[0])) {
    fits = fill(Ints{*i}, true);
  } else if (const auto* b = std::get_if<bool>(&operands[0])) {
    fits = fill(Ints{*b ? 1 : 0}, true);
  } else if (const auto* d = std::get_if<double>(&operands[0])) {
    fits = fill(Reals{*d}, true);
  } else if (const auto* is = std::get_if<Ints>(&operands[0])) {
    fits = fill(*is, false);
  } else if (const auto* ds = std::get_if<Reals>(&operands[0])) {
    fits = fill(*ds, false);
  } else {
    return not_known();
  }
  if (!fits) return not_covered("an element of a constant is not an integer").found(to_text(operands[0]));
  if (constant.dtype == DType::none) return not_covered("the dtype of a constant is unknown");
  if (operands.size() == 3) {
    const auto* shape = std::get_if<Ints>(&operands[2]);
    if (shape == nullptr || small_count(*shape, max_list) != constant.size()) {
      return Error(Errc::invalid_argument, "the number of elements of a constant does not match its shape");
    }
    constant.shape = *shape;
  }
  STELE_TRY_ASSIGN(std::string name, to_.constant(std::move(constant)));
  return std::optional(Value(TensorName{std::move(name)}));
}

}  // namespace stele::inline v0::detail::ir
