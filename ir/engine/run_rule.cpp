// Runs DL4J's kinds of mapping rules (ADR-0004). Their names are DL4J's.
#include <algorithm>

#include "ir/engine/node_scope.hpp"
#include "ir/rules/operands.hpp"

namespace stele::inline v0::detail::ir {

namespace {

using Value = ExpressionValue;
using Kind = Rule::Kind;

/// Makes one argument.
class RuleRunner {
 public:
  RuleRunner(const Rule& rule, const NodeScope& scope, ArgumentList& list) : rule_(rule), scope_(scope), list_(list) {}

  /// `ours` is DL4J's name of the argument; `framework` is the name of the framework's attribute or input.
  Status run(const std::string& ours, const std::string& framework) {
    STELE_TRY_ASSIGN(const Value* const found_value, scope_.find(framework));
    const Value value = *found_value;
    const auto found = rule_.arguments.find(ours);
    constants_ = found != rule_.arguments.end() ? &found->second : nullptr;
    switch (rule_.kind) {
      case Kind::value_mapping:
        if (is_list(value)) return not_covered("the attribute is a list").path(framework);
        return list_.add(ours, value);
      case Kind::list_element:
        if (!known(value) || empty(value)) return list_.add(ours, constant(1));
        return add_element(ours, value, number(0));
      case Kind::list_to_tensor:
        return list_to_tensor(ours, value);
      case Kind::tensor_element:
      case Kind::tensor_to_number:
      case Kind::tensor_to_ints:
        return from_tensor(ours, framework, value);
      case Kind::size_at: {
        STELE_TRY_ASSIGN(const Value shape, scope_.call("shape", value));
        if (!known(shape)) return not_covered("the shape of an input must be known").path(framework);
        return empty(shape) ? list_.add(ours, Value(std::int64_t{-1})) : add_element(ours, shape, number(0));
      }
      case Kind::string_equals:
        return add_truth(ours, value == constant(0));
      case Kind::string_not_equals:
        return add_truth(ours, value != constant(0));
      case Kind::string_contains: {  // the constant contains the attribute
        const Value whole = constant(0);
        const auto* in = std::get_if<std::string>(&whole);
        const auto* part = std::get_if<std::string>(&value);
        return add_truth(ours, in != nullptr && part != nullptr && in->find(*part) != in->npos);
      }
      case Kind::string_index:
        return list_.add(ours, Value(position_of(value)));
      case Kind::map_string_index:
        return map_string(ours, framework, value);
      case Kind::number_to_boolean:
        return number_to_boolean(ours, framework, value);
      case Kind::dtype_to_int: {
        STELE_TRY_ASSIGN(const Value code, scope_.call("dl4j_dtype", value));
        return list_.add(ours, code);
      }
      case Kind::conditional_index:
      case Kind::conditional_tensor_element:
        return conditional(ours, value);
      case Kind::size_threshold:
        return size_threshold(ours, framework, value);
      case Kind::flatten_dims:
        return flatten_dims(ours, framework, value);
      default:  // a tensor, several tensors, or a list
        return list_.add(ours, value);
    }
  }

 private:
  /// Returns a constant of the rule; unknown if the rule has fewer constants.
  Value constant(std::size_t i) const {
    return constants_ != nullptr && i < constants_->size() ? (*constants_)[i].second : Value();
  }
  Value number(std::size_t i) const {
    const Value value = constant(i);
    return known(value) ? value : Value(std::int64_t{0});
  }
  static bool empty(const Value& value) {
    const auto* ints = std::get_if<Ints>(&value);
    const auto* reals = std::get_if<Reals>(&value);
    return (ints != nullptr && ints->empty()) || (reals != nullptr && reals->empty());
  }
  std::int64_t position_of(const Value& value) const {
    for (std::size_t i = 0; constants_ != nullptr && i < constants_->size(); ++i) {
      if ((*constants_)[i].second == value) return static_cast<std::int64_t>(i);
    }
    return -1;
  }

  Status add_element(const std::string& ours, const Value& list, const Value& at) {
    STELE_TRY_ASSIGN(const Value one, element(list, at));
    return list_.add(ours, one);
  }
  /// Adds a bool, an integer, or both, as the operator declares them.
  Status add_truth(const std::string& ours, bool truth) {
    if (list_.has(ArgumentType::boolean, ours)) list_.arguments.bools.emplace_back(ours, truth);
    if (list_.has(ArgumentType::integer, ours)) list_.arguments.ints.emplace_back(ours, truth ? 1 : 0);
    return {};
  }
  Status list_to_tensor(const std::string& ours, const Value& value) {
    constexpr std::int64_t float32 = 1, int64 = 7;  // codes of DataType
    const Value operands[] = {value, Value(std::holds_alternative<Reals>(value) ? float32 : int64)};
    STELE_TRY_ASSIGN(const auto tensor, scope_.call("constant", operands));
    return list_.add(ours, *tensor);
  }
  Status from_tensor(const std::string& ours, const std::string& framework, const Value& tensor) {
    STELE_TRY_ASSIGN(const Value elements, scope_.call("value", tensor));
    if (!known(elements)) return not_covered("an input must be a constant").path(framework);
    if (rule_.kind == Kind::tensor_to_ints) return list_.add(ours, elements);
    if (empty(elements)) return list_.add(ours, Value(std::int64_t{0}));
    return add_element(ours, elements, rule_.kind == Kind::tensor_element ? number(0) : Value(std::int64_t{0}));
  }
  /// The constants are a string, the positions to use if the value equals the string and if not, and the name of a list
  /// or tensor.
  Status conditional(const std::string& ours, const Value& value) {
    const Value name = constant(3);
    const auto* from = std::get_if<std::string>(&name);
    if (from == nullptr) return Error(Errc::malformed, "the rule does not name a list").path(ours);
    STELE_TRY_ASSIGN(const Value* const found, scope_.find(*from));
    Value all = *found;
    if (rule_.kind == Kind::conditional_tensor_element) {
      STELE_TRY_ASSIGN(all, scope_.call("value", all));
      if (!known(all)) return not_covered("an input must be a constant").path(*from);
    }
    return add_element(ours, all, number(value == constant(0) ? 1 : 2));
  }
  /// The constants are a position, the minimum size at which it applies, and a position for shorter lists.
  Status size_threshold(const std::string& ours, const std::string& framework, const Value& list) {
    const auto* const ints = std::get_if<Ints>(&list);
    const Value min_size = number(1), otherwise = constant(2);
    const auto* const size = std::get_if<std::int64_t>(&min_size);
    if (ints == nullptr || size == nullptr) return not_covered("the attribute is not a list").path(framework);
    if (static_cast<std::int64_t>(ints->size()) >= *size) return add_element(ours, list, number(0));
    if (const auto* const text = std::get_if<std::string>(&otherwise)) {  // DL4J's files store this number as a string
      STELE_TRY_ASSIGN(const Expression place, parse_expression(*text));
      STELE_TRY_ASSIGN(const Value at, place.evaluate(scope_));
      return add_element(ours, list, at);
    }
    return add_element(ours, list, number(2));
  }
  /// Adds the product of the extents before an axis, and the product of the extents from the axis on.
  Status flatten_dims(const std::string& ours, const std::string& framework, Value extents) {
    if (std::holds_alternative<TensorName>(extents)) {
      STELE_TRY_ASSIGN(extents, scope_.call("value", extents));
    }
    const auto* const ints = std::get_if<Ints>(&extents);
    const Value axis = number(0);
    const auto* const at = std::get_if<std::int64_t>(&axis);
    if (ints == nullptr || at == nullptr || *at < 0 || *at > static_cast<std::int64_t>(ints->size())) {
      return not_covered("the extents are unknown, or do not include the axis").path(framework);
    }
    STELE_TRY_ASSIGN(const Value before, call_function("product", {Value(Ints(ints->begin(), ints->begin() + *at))}));
    STELE_TRY_ASSIGN(const Value after, call_function("product", {Value(Ints(ints->begin() + *at, ints->end()))}));
    STELE_TRY(list_.add(ours, before));
    return list_.add(ours, after);
  }
  Status map_string(const std::string& ours, const std::string& framework, const Value& names) {
    const auto place = rule_.arguments.find("index");
    if (place == rule_.arguments.end() || place->second.empty()) {
      return Error(Errc::malformed, "the rule has no \"index\"").path(ours);
    }
    STELE_TRY_ASSIGN(const Value name, element(names, place->second.front().second));
    for (std::size_t i = 0; constants_ != nullptr && i < constants_->size(); ++i) {
      if (Value((*constants_)[i].first) == name) return list_.add(ours, constant(i));
    }
    return not_covered("the rule has no number for this string").path(framework).found(to_text(name));
  }
  Status number_to_boolean(const std::string& ours, const std::string& framework, const Value& value) {
    if (const auto* b = std::get_if<bool>(&value)) return list_.add(ours, Value(std::int64_t{*b ? 1 : 0}));
    if (const auto* i = std::get_if<std::int64_t>(&value)) return list_.add(ours, Value(*i > 0));
    if (const auto* d = std::get_if<double>(&value)) return list_.add(ours, Value(*d > 0));
    return not_covered("the attribute is not a number").path(framework);
  }

  const Rule& rule_;
  const NodeScope& scope_;
  ArgumentList& list_;
  const std::vector<std::pair<std::string, Value>>* constants_ = nullptr;
};

}  // namespace

Status run_rule(const Rule& rule, const NodeScope& scope, ArgumentList& list) {
  if (rule.kind == Kind::constant) {
    for (const auto& [name, values] : rule.arguments) STELE_TRY(list.add(name, values.front().second));
    return {};
  }
  for (const auto& [ours, framework] : rule.names) STELE_TRY(RuleRunner(rule, scope, list).run(ours, framework));
  return {};
}

}  // namespace stele::inline v0::detail::ir
