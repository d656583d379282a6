// Runs DL4J's kinds of rules backwards: returns the framework's node that a rule converts to a given operation.
#include <algorithm>
#include <set>
#include <utility>

#include "dl4j/arrays_fb.hpp"
#include "encodings/onnx/fields.hpp"
#include "ir/dl4j/graph_builder.hpp"
#include "ir/engine/node_scope.hpp"
#include "ir/rules/mapping.hpp"
#include "ir/rules/operands.hpp"
#include "stele/import.hpp"

namespace stele::inline v0 {

namespace {

using detail::ir::Declaration;
using detail::ir::ExpressionValue;
using detail::ir::known;
using detail::ir::not_covered;
using detail::ir::Rule;
using Value = ExpressionValue;
using Kind = Rule::Kind;

class Inverter {
 public:
  Inverter(const Declaration& declaration, const NamedArguments& arguments)
      : declaration_(declaration), arguments_(arguments) {}

  Result<FrameworkNode> run(const std::string& name) {
    node_.name = name;
    node_.op = declaration_.op;
    node_.domain = declaration_.domain;
    for (const Rule& rule : declaration_.rules) {
      if (rule.kind == Kind::constant) {
        for (const auto& [argument, values] : rule.arguments) STELE_TRY(check(argument, values.front().second));
        continue;
      }
      for (const auto& [ours, framework] : rule.names) STELE_TRY(invert(rule, ours, framework));
    }
    STELE_TRY(place_inputs());
    STELE_TRY(place_elements());
    for (const auto& [argument, output] : arguments_.outputs) node_.outputs.push_back(output);
    STELE_TRY(check_all_used());
    return std::move(node_);
  }

 private:
  static Error differs(const std::string& argument, const Value& expected, const Value& found) {
    return not_covered("the rule sets the argument to a different value")
        .path(argument)
        .expected(detail::ir::to_text(expected))
        .found(detail::ir::to_text(found));
  }

  /// Returns the value of an argument, and marks the argument as used. The value is unknown if the argument is not
  /// given.
  Value take(const std::string& name) {
    used_.insert(name);
    detail::ir::Ints ints;
    detail::ir::Reals reals;
    for (const auto& [argument, value] : arguments_.ints) {
      if (argument == name) ints.push_back(value);
    }
    for (const auto& [argument, value] : arguments_.doubles) {
      if (argument == name) reals.push_back(value);
    }
    if (ints.size() == 1) return ints.front();
    if (!ints.empty()) return ints;
    if (reals.size() == 1) return reals.front();
    if (!reals.empty()) return reals;
    for (const auto& [argument, value] : arguments_.bools) {
      if (argument == name) return value;
    }
    for (const auto& [argument, value] : arguments_.strings) {
      if (argument == name) return value;
    }
    for (const auto& [argument, value] : arguments_.dtypes) {
      if (argument == name) return std::int64_t{detail::onnx::code_of(value)};
    }
    return {};
  }

  static bool same(const Value& a, const Value& b) {
    if (a == b) return true;
    const auto x = detail::ir::list_of<double>(a), y = detail::ir::list_of<double>(b);
    if (x && y) return *x == *y;
    const auto truth = [](const Value& v) {
      const auto* const flag = std::get_if<bool>(&v);
      return flag != nullptr ? Value(std::int64_t{*flag ? 1 : 0}) : v;
    };
    return truth(a) == truth(b);
  }

  Status check(const std::string& argument, const Value& expected) {
    const Value found = take(argument);
    if (!known(found) || same(found, expected)) return {};
    return differs(argument, expected, found);
  }

  /// Returns the value of an attribute that a node does not set; unknown if the attribute is required.
  static Value default_of(const Declaration& declaration, const std::string& attribute) {
    const auto found = std::find_if(declaration.attributes.begin(), declaration.attributes.end(),
                                    [&](const auto& a) { return a.name == attribute; });
    if (found == declaration.attributes.end() || !found->value) return {};
    return found->value->kind == detail::ir::Expression::Kind::constant ? found->value->constant : Value();
  }

  /// Sets a string attribute: to the rule's string if `truth` is true, else to the default, which must differ from it.
  Status set_text(const std::string& attribute, const Value& text, bool truth) {
    if (truth) return set(attribute, text);
    const Value otherwise = default_of(declaration_, attribute);
    if (known(otherwise) && otherwise != text) return {};
    return not_covered("the rule does not determine the attribute's string").path(attribute);
  }

  Status set(const std::string& attribute, const Value& value) {
    auto& to = node_.attributes;
    return std::visit(
        [&]<class T>(const T& v) -> Status {
          if constexpr (std::is_same_v<T, std::monostate>) {
            return {};
          } else if constexpr (std::is_constructible_v<AttributeValue, T>) {
            const auto [place, added] = to.try_emplace(attribute, v);
            if (added || place->second == AttributeValue(v)) return {};
            return not_covered("two rules give the attribute different values").path(attribute);
          } else {
            return not_covered("an attribute cannot store the value").path(attribute);
          }
        },
        value);
  }

  Status invert(const Rule& rule, const std::string& ours, const std::string& framework) {
    const auto found = rule.arguments.find(ours);
    const auto constant = [&](std::size_t i) {
      return found != rule.arguments.end() && i < found->second.size() ? found->second[i].second : Value();
    };
    const Value value = rule.kind == Kind::ndarray_mapping ? Value() : take(ours);
    const auto* const flag = std::get_if<bool>(&value);
    const auto* const number = std::get_if<std::int64_t>(&value);
    const bool truth = flag != nullptr ? *flag : number != nullptr && *number != 0;
    switch (rule.kind) {
      case Kind::ndarray_mapping:
        for (const auto& [argument, input] : arguments_.inputs) {
          if (argument == ours) inputs_[framework].push_back(input);
        }
        used_.insert(ours);
        return {};
      case Kind::value_mapping:
        return set(framework, value);
      case Kind::list:
        return set(framework, number != nullptr ? Value(detail::ir::Ints{*number}) : value);
      case Kind::list_element: {
        const Value at = constant(0);
        const auto* const position = std::get_if<std::int64_t>(&at);
        if (number != nullptr) elements_[framework][position != nullptr ? *position : 0] = *number;
        return {};
      }
      case Kind::string_equals:
        return known(value) ? set_text(framework, constant(0), truth) : Status();
      case Kind::string_not_equals:
        return known(value) ? set_text(framework, constant(0), !truth) : Status();
      case Kind::string_index:
        if (number == nullptr || *number < 0 || !known(constant(static_cast<std::size_t>(*number)))) {
          return not_covered("the rule has no string with this number").path(ours);
        }
        return set(framework, constant(static_cast<std::size_t>(*number)));
      case Kind::number_to_boolean:
        return known(value) ? set(framework, std::int64_t{truth ? 1 : 0}) : Status();
      case Kind::dtype_to_int: {
        const auto dtype = detail::samediff::dtype_of(static_cast<stele_fb::Type>(number != nullptr ? *number : -1));
        if (!dtype) return not_covered("the argument is not a dtype").path(ours);
        return set(framework, std::int64_t{detail::onnx::code_of(*dtype)});
      }
      default:
        return not_covered("a rule of this kind cannot be run backwards").path(ours);
    }
  }

  Status place_inputs() {
    for (const Declaration::Port& port : declaration_.inputs) {
      const auto given = inputs_.find(port.name);
      if (given == inputs_.end() || given->second.empty()) {
        if (!port.optional && !port.rest) return Error(Errc::missing, "an input is not given").path(port.name);
        node_.inputs.emplace_back();
        continue;
      }
      node_.inputs.insert(node_.inputs.end(), given->second.begin(), given->second.end());
    }
    while (!node_.inputs.empty() && node_.inputs.back().empty()) node_.inputs.pop_back();
    return {};
  }

  /// Sets the list attributes whose elements come from separate rules.
  Status place_elements() {
    for (const auto& [attribute, elements] : elements_) {
      detail::ir::Ints list;
      for (const auto& [position, value] : elements) {
        if (position != static_cast<std::int64_t>(list.size())) {
          return not_covered("no rule covers an element of the list").path(attribute);
        }
        list.push_back(value);
      }
      STELE_TRY(set(attribute, Value(std::move(list))));
    }
    return {};
  }

  Status check_all_used() const {
    Status status;
    const auto check = [&](const auto& list) {
      for (const auto& [argument, value] : list) {
        if (status && !used_.contains(argument)) status = not_covered("no rule covers the argument").path(argument);
      }
    };
    check(arguments_.inputs);
    check(arguments_.ints);
    check(arguments_.doubles);
    check(arguments_.bools);
    check(arguments_.dtypes);
    check(arguments_.strings);
    return status;
  }

  const Declaration& declaration_;
  const NamedArguments& arguments_;
  FrameworkNode node_;
  std::set<std::string> used_;
  std::map<std::string, std::vector<std::string>> inputs_;                // by the framework's name
  std::map<std::string, std::map<std::int64_t, std::int64_t>> elements_;  // by attribute and position
};

/// Swaps the inputs that indexOverrides lists, which is its own inverse.
void exchange(const Declaration& declaration, GraphArguments<std::string>& inputs) {
  const auto n = static_cast<std::int64_t>(inputs.size());
  std::set<std::int64_t> done;
  for (const auto& [from, to] : declaration.index_overrides) {
    if (from < 0 || to < 0 || from >= n || to >= n || !done.insert(std::min(from, to)).second) continue;
    std::swap(inputs[static_cast<std::size_t>(from)].second, inputs[static_cast<std::size_t>(to)].second);
  }
}

}  // namespace

Result<FrameworkNode> MappingSet::inverted(const GraphOperation& operation, std::int64_t version,
                                           const OperatorSet& operators) const {
  const OperatorDescriptor* const descriptor = operators.find(operation.op_name);
  if (descriptor == nullptr) {
    return Error(Errc::missing, "no operator has this name").path(operation.name).found(operation.op_name);
  }
  STELE_TRY_ASSIGN(const GraphOperation plain, detail::ir::plain_arguments(operation, *descriptor));
  STELE_TRY_ASSIGN(const NamedArguments given, named(*descriptor, plain));
  Error error = not_covered("no rule maps a single node to this operator");
  for (const auto& declaration : declarations_) {
    if (declaration->op_name != operation.op_name) continue;
    if (find(declaration->domain, declaration->op, version) != declaration.get()) continue;
    NamedArguments arguments = given;
    exchange(*declaration, arguments.inputs);
    auto node = Inverter(*declaration, arguments).run(operation.name);
    if (node) return node;
    error = std::move(node).error();
  }
  const std::string path = operation.name + " (" + operation.op_name + ')';
  return std::move(error).path(error.path().empty() ? path : path + ": " + std::string(error.path()));
}

}  // namespace stele::inline v0
