#include "ir/engine/arguments.hpp"

#include <algorithm>

#include "encodings/onnx/fields.hpp"

namespace stele::inline v0::detail::ir {

using Value = ExpressionValue;

Status ArgumentList::add(const std::string& name, const Value& value) {
  if (!known(value)) return {};  // not given
  if (open(value)) return not_known().path(descriptor_.name + '.' + name);
  if (const auto* tensor = std::get_if<TensorName>(&value)) {
    if (!tensor->name.empty()) arguments.inputs.emplace_back(name, tensor->name);
    return {};
  }
  if (const auto* tensors = std::get_if<Tensors>(&value)) {
    for (const TensorName& tensor : *tensors) arguments.inputs.emplace_back(name, tensor.name);
    return {};
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    arguments.strings.emplace_back(name, *text);
    return {};
  }
  if (const auto* b = std::get_if<bool>(&value)) {
    if (has(ArgumentType::boolean, name) || !has(ArgumentType::integer, name)) {
      arguments.bools.emplace_back(name, *b);
      return {};
    }
    return add(name, Value(std::int64_t{*b ? 1 : 0}));
  }
  if (const auto* i = std::get_if<std::int64_t>(&value)) return add_integers(name, {*i});
  if (const auto* list = std::get_if<Ints>(&value)) return add_integers(name, *list);
  if (const auto* d = std::get_if<double>(&value)) {
    arguments.doubles.emplace_back(name, *d);
    return {};
  }
  for (const double d : std::get<Reals>(value)) arguments.doubles.emplace_back(name, d);
  return {};
}

Status ArgumentList::add_integers(const std::string& name, const Ints& list) {
  const bool integer = has(ArgumentType::integer, name);
  for (const std::int64_t i : list) {
    if (integer ||
        (!has(ArgumentType::real, name) && !has(ArgumentType::boolean, name) && !has(ArgumentType::dtype, name))) {
      arguments.ints.emplace_back(name, i);
    } else if (has(ArgumentType::real, name)) {
      arguments.doubles.emplace_back(name, static_cast<double>(i));
    } else if (has(ArgumentType::boolean, name)) {
      arguments.bools.emplace_back(name, i != 0);
    } else {
      arguments.dtypes.emplace_back(name, onnx::dtype_of(static_cast<std::uint64_t>(i)));
    }
  }
  return {};
}

}  // namespace stele::inline v0::detail::ir
