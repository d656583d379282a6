#include "ir/engine.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/similar.hpp"
#include "dl4j/arrays_fb.hpp"
#include "recorders/onnx/model.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

namespace {

using Value = ExpressionValue;
using Ints = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using Tensors = std::vector<TensorName>;

Error not_covered(std::string_view message) { return Error(Errc::unsupported, message); }

/// The values of names while a declaration runs on a node.
class NodeScope final : public Scope {
 public:
  NodeScope(const Declaration& declaration, GraphBuilder& to) : declaration_(declaration), to_(to) {}

  void set(const std::string& name, Value value) { names_[name] = std::move(value); }

  Result<Value> value_of(std::string_view name) const override {
    const std::string key(name);
    if (const auto found = names_.find(key); found != names_.end()) return found->second;
    const auto define = std::find_if(declaration_.defines.begin(), declaration_.defines.end(),
                                     [&](const auto& d) { return d.name == name; });
    if (define == declaration_.defines.end()) return Error(Errc::missing, "there is no such name").path(key);
    names_[key] = Value();  // a definition of itself is unknown
    STELE_TRY_ASSIGN(Value value, define->value[0].evaluate(*this));
    return names_[key] = std::move(value);
  }

  Result<std::optional<Value>> call(std::string_view function, std::span<const Value> operands) const override {
    if (function == "constant") return make_constant(operands);
    if (function == "dl4j_dtype" && operands.size() == 1) {
      const auto* code = std::get_if<std::int64_t>(&operands[0]);
      const DType dtype = code != nullptr ? onnx::dtype_of(static_cast<std::uint64_t>(*code)) : DType::none;
      if (dtype == DType::none)
        return not_covered("a dtype is unknown, or DL4J has no such dtype").found(to_text(operands[0]));
      return std::optional(Value(static_cast<std::int64_t>(samediff::type_of(dtype))));
    }
    if (function == "joined_extent" && operands.size() == 2) return joined_extent(operands);
    const bool query = function == "rank" || function == "shape" || function == "dtype" || function == "value";
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
    if (!info->shape) return std::optional(Value());
    if (function == "rank") return std::optional(Value(static_cast<std::int64_t>(info->shape->size())));
    return std::optional(Value(*info->shape));
  }

 private:
  /// joined_extent(tensors, axis): the extent of their concatenation.
  Result<std::optional<Value>> joined_extent(std::span<const Value> operands) const {
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
        return std::optional(Value(unknown_extent));
    }
    return std::optional(Value(total));
  }

  /// constant(value, dtype [, shape]): a tensor of these elements; a scalar, unless the value is a list.
  Result<std::optional<Value>> make_constant(std::span<const Value> operands) const {
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
      if (std::find(is->begin(), is->end(), unknown_extent) != is->end()) return not_covered("an extent is not known");
      fits = fill(*is, false);
    } else if (const auto* ds = std::get_if<Reals>(&operands[0])) {
      fits = fill(*ds, false);
    } else {
      return not_covered("the elements of a constant are not known");
    }
    if (!fits) return not_covered("an element of a constant is not an integer").found(to_text(operands[0]));
    if (constant.dtype == DType::none) return not_covered("the dtype of a constant is not known");
    if (operands.size() == 3) {
      const auto* shape = std::get_if<Ints>(&operands[2]);
      if (shape == nullptr || small_count(*shape, max_list) != constant.size()) {
        return Error(Errc::invalid_argument, "a constant does not have its shape's number of elements");
      }
      constant.shape = *shape;
    }
    return std::optional(Value(TensorName{to_.constant(std::move(constant))}));
  }

  const Declaration& declaration_;
  GraphBuilder& to_;
  mutable std::unordered_map<std::string, Value> names_;
};

/// Adds an argument under the type that its value has.
class ArgumentList {
 public:
  explicit ArgumentList(const OperatorDescriptor& descriptor) : descriptor_(descriptor) {}

  Status add(const std::string& name, const Value& value) {
    if (!known(value)) return {};  // not given
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

  NamedArguments arguments;

 private:
  bool has(ArgumentType type, const std::string& name) const { return descriptor_.find(type, name) != nullptr; }

  Status add_integers(const std::string& name, const Ints& list) {
    if (std::find(list.begin(), list.end(), unknown_extent) != list.end()) {
      return not_covered("an argument depends on an extent that is not known").path(descriptor_.name + '.' + name);
    }
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

  const OperatorDescriptor& descriptor_;
};

class Runner {
 public:
  Runner(const Declaration& declaration, const FrameworkNode& node, GraphBuilder& to)
      : declaration_(declaration), node_(node), to_(to), scope_(declaration, to) {}

  Status run() {
    STELE_TRY(bind_inputs());
    STELE_TRY(bind_attributes());
    STELE_TRY(bind_outputs());
    for (const auto& [text, requirement] : declaration_.requirements) {
      STELE_TRY_ASSIGN(const Value value, requirement.evaluate(scope_));
      const auto* truth = std::get_if<bool>(&value);
      if (truth != nullptr && *truth) continue;
      return not_covered(truth != nullptr ? "the rule does not cover this use of the operator"
                                          : "the rule needs what the model does not tell")
          .expected(text);
    }
    if (declaration_.op_name.empty()) {
      for (const Step& step : declaration_.steps) STELE_TRY(run_step(step));
    } else {
      STELE_TRY(run_rules());
    }
    return infer();
  }

 private:
  Status bind_inputs() {
    std::size_t i = 0;
    for (const Declaration::Port& port : declaration_.inputs) {
      if (port.rest) {
        Tensors rest;
        for (; i < node_.inputs.size(); ++i) rest.push_back({node_.inputs[i]});
        scope_.set(port.name, std::move(rest));
        continue;
      }
      TensorName tensor{i < node_.inputs.size() ? node_.inputs[i] : std::string()};
      if (tensor.name.empty() && !port.optional) return Error(Errc::missing, "an input is not given").path(port.name);
      scope_.set(port.name, std::move(tensor));
      ++i;
    }
    for (; i < node_.inputs.size(); ++i) {
      if (!node_.inputs[i].empty())
        return not_covered("the rule has no such input").found("input " + std::to_string(i));
    }
    return {};
  }

  Status bind_attributes() {
    for (const auto& [name, value] : node_.attributes) {
      const bool declared = std::any_of(declaration_.attributes.begin(), declaration_.attributes.end(),
                                        [&, &key = name](const auto& a) { return a.name == key; });
      if (!declared) return not_covered("the rule has no such attribute").path(name);
      scope_.set(name, value);
    }
    for (const Declaration::Named& attribute : declaration_.attributes) {
      if (node_.attributes.contains(attribute.name)) continue;
      if (attribute.value.empty()) return Error(Errc::missing, "an attribute is not given").path(attribute.name);
      STELE_TRY_ASSIGN(Value value, attribute.value[0].evaluate(scope_));
      scope_.set(attribute.name, std::move(value));
    }
    return {};
  }

  Status bind_outputs() {
    std::size_t i = 0;
    for (const Declaration::Port& port : declaration_.outputs) {
      if (port.rest) {
        Tensors rest;
        for (; i < node_.outputs.size(); ++i) rest.push_back({node_.outputs[i]});
        outputs_[port.name] = std::move(rest);
        scope_.set("count_" + port.name, static_cast<std::int64_t>(std::get<Tensors>(outputs_[port.name]).size()));
        continue;
      }
      const bool given = i < node_.outputs.size() && !node_.outputs[i].empty();
      if (given) outputs_[port.name] = TensorName{node_.outputs[i]};
      scope_.set("wants_" + port.name, given);
      ++i;
    }
    for (; i < node_.outputs.size(); ++i) {
      if (!node_.outputs[i].empty())
        return not_covered("the rule has no such output").found("output " + std::to_string(i));
    }
    return {};
  }

  std::string own_name(const std::string& name) const {
    const std::string base = !node_.name.empty() ? node_.name : !node_.outputs.empty() ? node_.outputs[0] : node_.op;
    return to_.fresh(base + '/' + name);
  }

  /// Returns the names for an output of a step, in the pass `i` of a loop.
  Result<std::vector<std::string>> output_names(const Step::Output& output, bool loop, std::int64_t i) {
    std::size_t count = 1;
    if (!output.count.empty()) {
      STELE_TRY_ASSIGN(const Value value, output.count[0].evaluate(scope_));
      const auto* n = std::get_if<std::int64_t>(&value);
      if (n == nullptr || *n < 0 || *n > static_cast<std::int64_t>(max_list)) {
        return not_covered("the number of a step's outputs is not known").path(output.name).found(to_text(value));
      }
      count = static_cast<std::size_t>(*n);
    }
    const bool list = !output.count.empty() || loop;
    const auto given = outputs_.find(output.name);
    std::vector<std::string> names;
    for (std::size_t k = 0; k < count; ++k) {
      if (given == outputs_.end()) {
        names.push_back(own_name(output.name));
      } else if (const auto* one = std::get_if<TensorName>(&given->second)) {
        names.push_back(one->name);
      } else {
        const Tensors& all = std::get<Tensors>(given->second);
        const std::size_t at = loop ? static_cast<std::size_t>(i) : k;
        if (at >= all.size()) return not_covered("a step makes more outputs than the node has").path(output.name);
        names.push_back(all[at].name.empty() ? own_name(output.name) : all[at].name);
      }
    }
    if (!list) {
      scope_.set(output.name, TensorName{names[0]});
    } else {
      Tensors tensors;
      if (loop && i != 0) {
        STELE_TRY_ASSIGN(const Value before, scope_.value_of(output.name));
        tensors = std::get<Tensors>(before);
      }
      for (const std::string& name : names) tensors.push_back({name});
      scope_.set(output.name, std::move(tensors));
    }
    return names;
  }

  Result<bool> holds(const Step& step) {
    if (step.condition.empty()) return true;
    STELE_TRY_ASSIGN(const Value value, step.condition[0].evaluate(scope_));
    if (const auto* b = std::get_if<bool>(&value)) return *b;
    if (const auto* i = std::get_if<std::int64_t>(&value)) return *i != 0;
    return not_covered("the rule needs what the model does not tell").path(step.op_name).found(to_text(value));
  }

  Status run_step(const Step& step) {
    STELE_TRY_ASSIGN(const bool wanted, holds(step));
    if (!wanted) return {};
    std::int64_t repeats = 1;
    const bool loop = !step.variable.empty();
    if (loop) {
      STELE_TRY_ASSIGN(const Value value, step.repeats[0].evaluate(scope_));
      const auto* n = std::get_if<std::int64_t>(&value);
      if (n == nullptr || *n < 0 || *n > static_cast<std::int64_t>(max_list)) {
        return not_covered("the number of repeats is not known").path(step.op_name).found(to_text(value));
      }
      repeats = *n;
    }
    for (std::int64_t i = 0; i < repeats; ++i) {
      if (loop) scope_.set(step.variable, i);
      // `same(x: tensor)` names a tensor of the rule, and makes an operation only if it is an output of the node.
      if (step.op_name == "same" && step.arguments.size() == 1 && !outputs_.contains(step.outputs[0].name)) {
        STELE_TRY_ASSIGN(Value value, step.arguments[0].value.evaluate(scope_));
        scope_.set(step.outputs[0].name, std::move(value));
        continue;
      }
      STELE_TRY(run_once(step, loop, i));
    }
    return {};
  }

  Result<const OperatorDescriptor*> descriptor_of(const std::string& name) const {
    const OperatorDescriptor* const descriptor = to_.operators().find(name == "same" ? "identity" : name);
    if (descriptor != nullptr) return descriptor;
    std::vector<std::string> names;
    for (const OperatorDescriptor& o : to_.operators().all()) names.push_back(o.name);
    Error error = Error(Errc::malformed, "the rule names an operator that DL4J does not have").path(name);
    const std::string_view near = most_similar(name, names);
    if (!near.empty()) return std::move(error).hint("did you mean " + std::string(near) + '?');
    return error;
  }

  Status run_once(const Step& step, bool loop, std::int64_t i) {
    STELE_TRY_ASSIGN(const OperatorDescriptor* const descriptor, descriptor_of(step.op_name));
    ArgumentList list(*descriptor);
    for (const Step::Argument& argument : step.arguments) {
      auto value = argument.value.evaluate(scope_);
      if (!value) return in_argument(std::move(value).error(), step.op_name, argument.name);
      STELE_TRY(list.add(step.op_name == "same" ? "input" : argument.name, *value));
    }
    std::vector<const ArgumentDescriptor*> ports;
    for (const ArgumentDescriptor& a : descriptor->arguments) {
      if (a.type == ArgumentType::output) ports.push_back(&a);
    }
    for (std::size_t k = 0; k < step.outputs.size(); ++k) {
      if (k >= ports.size())
        return Error(Errc::malformed, "the operator has fewer outputs than the step").path(step.op_name);
      STELE_TRY_ASSIGN(const std::vector<std::string> names, output_names(step.outputs[k], loop, i));
      for (const std::string& name : names) list.arguments.outputs.emplace_back(ports[k]->name, name);
    }
    return to_.emit(*descriptor, list.arguments, operation_name());
  }

  std::string operation_name() const {
    if (!node_.name.empty()) return node_.name;
    return node_.outputs.empty() ? node_.op : node_.outputs[0];
  }

  static Error in_argument(Error error, const std::string& op, const std::string& argument) {
    if (!error.path().empty()) return error;
    return std::move(error).path(op + '.' + argument);
  }

  // The kinds of rules of DL4J (ADR-0004).

  Status run_rules() {
    STELE_TRY_ASSIGN(const OperatorDescriptor* const descriptor, descriptor_of(declaration_.op_name));
    ArgumentList list(*descriptor);
    for (const Rule& rule : declaration_.rules) {
      for (const auto& [theirs, framework] : rule.names) {
        STELE_TRY(run_rule(rule, theirs, framework, list));
      }
      if (rule.kind == Rule::Kind::constant) {
        for (const auto& [name, values] : rule.arguments) STELE_TRY(list.add(name, values.front().second));
      }
    }
    permute(list.arguments.inputs);
    std::size_t k = 0;
    for (const ArgumentDescriptor& a : descriptor->arguments) {
      if (a.type != ArgumentType::output) continue;
      for (; k < node_.outputs.size(); ++k) {
        const std::string& name = node_.outputs[k];
        list.arguments.outputs.emplace_back(a.name, name.empty() ? own_name(a.name) : name);
        if (!a.repeated) break;
      }
      ++k;
    }
    return to_.emit(*descriptor, list.arguments, operation_name());
  }

  /// indexOverrides exchange inputs.
  void permute(GraphArguments<std::string>& inputs) const {
    GraphArguments<std::string> moved = inputs;
    for (const auto& [from, to] : declaration_.index_overrides) {
      const auto n = static_cast<std::int64_t>(inputs.size());
      if (from < 0 || to < 0 || from >= n || to >= n) continue;
      moved[static_cast<std::size_t>(to)].second = inputs[static_cast<std::size_t>(from)].second;
      moved[static_cast<std::size_t>(from)].second = inputs[static_cast<std::size_t>(to)].second;
    }
    inputs = std::move(moved);
  }

  Result<Value> constant_value(const std::string& name) {
    STELE_TRY_ASSIGN(const Value tensor, scope_.value_of(name));
    const Value operands[] = {tensor};
    STELE_TRY_ASSIGN(const auto value, scope_.call("value", operands));
    if (value && known(*value)) return *value;
    return not_covered("an input must be a constant").path(name);
  }

  /// Adds a truth as DL4J has it: as a bool, an integer, or both.
  static Status add_truth(const std::string& name, bool truth, const OperatorDescriptor* op, ArgumentList& list) {
    if (op->find(ArgumentType::boolean, name) != nullptr) list.arguments.bools.emplace_back(name, truth);
    if (op->find(ArgumentType::integer, name) != nullptr) list.arguments.ints.emplace_back(name, truth ? 1 : 0);
    return {};
  }

  Status run_rule(const Rule& rule, const std::string& theirs, const std::string& framework, ArgumentList& list) {
    using Kind = Rule::Kind;
    if (rule.kind == Kind::constant) return {};
    STELE_TRY_ASSIGN(const Value value, scope_.value_of(framework));
    const auto found = rule.arguments.find(theirs);
    const auto* arguments = found != rule.arguments.end() ? &found->second : nullptr;
    const auto argument = [&](std::size_t i) {
      return arguments != nullptr && i < arguments->size() ? (*arguments)[i].second : Value();
    };
    const auto number = [&](std::size_t i) {
      const Value v = argument(i);
      const auto* n = std::get_if<std::int64_t>(&v);
      return n != nullptr ? Value(*n) : Value(std::int64_t{0});
    };
    const OperatorDescriptor* const op = to_.operators().find(declaration_.op_name);
    switch (rule.kind) {
      case Kind::ndarray_mapping:
      case Kind::multi_input_index:
      case Kind::list:
        return list.add(theirs, value);
      case Kind::value_mapping:
        if (value.index() >= 6) return not_covered("the attribute is a list").path(framework);
        return list.add(theirs, value);
      case Kind::list_element: {
        if (!known(value)) return list.add(theirs, argument(1));
        const Expression element{.kind = Expression::Kind::index,
                                 .operands = {Expression{.constant = value}, Expression{.constant = number(0)}}};
        const auto* ints = std::get_if<Ints>(&value);
        if (ints != nullptr && ints->empty()) return list.add(theirs, argument(1));
        STELE_TRY_ASSIGN(const Value one, element.evaluate(scope_));
        return list.add(theirs, one);
      }
      case Kind::list_to_tensor: {
        const Value operands[] = {value, Value(std::int64_t{std::holds_alternative<Reals>(value) ? 1 : 7})};
        STELE_TRY_ASSIGN(const auto tensor, scope_.call("constant", operands));
        return list.add(theirs, tensor.value_or(Value()));
      }
      case Kind::tensor_element:
      case Kind::tensor_to_number: {
        STELE_TRY_ASSIGN(const Value elements, constant_value(framework));
        const Value at = rule.kind == Kind::tensor_element ? number(0) : Value(std::int64_t{0});
        const auto* ints = std::get_if<Ints>(&elements);
        const auto* reals = std::get_if<Reals>(&elements);
        if ((ints != nullptr && ints->empty()) || (reals != nullptr && reals->empty())) {
          return list.add(theirs, Value(std::int64_t{0}));
        }
        const Expression element{.kind = Expression::Kind::index,
                                 .operands = {Expression{.constant = elements}, Expression{.constant = at}}};
        STELE_TRY_ASSIGN(const Value one, element.evaluate(scope_));
        return list.add(theirs, one);
      }
      case Kind::tensor_to_ints: {
        STELE_TRY_ASSIGN(const Value elements, constant_value(framework));
        return list.add(theirs, elements);
      }
      case Kind::size_at: {
        const Value operands[] = {value};
        STELE_TRY_ASSIGN(const auto shape, scope_.call("shape", operands));
        const auto* extents = shape ? std::get_if<Ints>(&*shape) : nullptr;
        if (extents == nullptr) return not_covered("the shape of an input must be known").path(framework);
        if (extents->empty()) return list.add(theirs, Value(std::int64_t{-1}));
        const Expression element{.kind = Expression::Kind::index,
                                 .operands = {Expression{.constant = *shape}, Expression{.constant = number(0)}}};
        STELE_TRY_ASSIGN(const Value one, element.evaluate(scope_));
        return list.add(theirs, one);
      }
      case Kind::string_equals:
        return add_truth(theirs, value == argument(0), op, list);
      case Kind::string_not_equals:
        return add_truth(theirs, value != argument(0), op, list);
      case Kind::string_contains: {
        const Value whole = argument(0);
        const auto* in = std::get_if<std::string>(&whole);
        const auto* part = std::get_if<std::string>(&value);
        return add_truth(theirs, in != nullptr && part != nullptr && in->find(*part) != in->npos, op, list);
      }
      case Kind::string_index: {
        std::int64_t index = -1;
        for (std::size_t i = 0; arguments != nullptr && i < arguments->size(); ++i) {
          if (index < 0 && (*arguments)[i].second == value) index = static_cast<std::int64_t>(i);
        }
        return list.add(theirs, Value(index));
      }
      case Kind::map_string_index: {
        const auto place = rule.arguments.find("index");
        const auto* names = std::get_if<std::vector<std::string>>(&value);
        if (place == rule.arguments.end() || place->second.empty() || names == nullptr) {
          return not_covered("the attribute is not a list of strings").path(framework);
        }
        const auto* at = std::get_if<std::int64_t>(&place->second.front().second);
        if (at == nullptr || *at < 0 || *at >= static_cast<std::int64_t>(names->size())) {
          return not_covered("the attribute has too few strings").path(framework);
        }
        for (std::size_t i = 0; arguments != nullptr && i < arguments->size(); ++i) {
          if ((*arguments)[i].first == (*names)[static_cast<std::size_t>(*at)]) return list.add(theirs, argument(i));
        }
        return not_covered("the rule has no number for this string")
            .path(framework)
            .found((*names)[static_cast<std::size_t>(*at)]);
      }
      case Kind::number_to_boolean: {
        if (const auto* b = std::get_if<bool>(&value)) return list.add(theirs, Value(std::int64_t{*b ? 1 : 0}));
        if (const auto* i = std::get_if<std::int64_t>(&value)) return list.add(theirs, Value(*i > 0));
        if (const auto* d = std::get_if<double>(&value)) return list.add(theirs, Value(*d > 0));
        return not_covered("the attribute is not a number").path(framework);
      }
      case Kind::dtype_to_int: {
        const Value operands[] = {value};
        STELE_TRY_ASSIGN(const auto code, scope_.call("dl4j_dtype", operands));
        return list.add(theirs, code.value_or(Value()));
      }
      case Kind::conditional_index: {
        const Value list_name = argument(3);
        const auto* from = std::get_if<std::string>(&list_name);
        if (from == nullptr) return Error(Errc::malformed, "the rule names no list").path(theirs);
        STELE_TRY_ASSIGN(const Value all, scope_.value_of(*from));
        const Expression element{
            .kind = Expression::Kind::index,
            .operands = {Expression{.constant = all}, Expression{.constant = number(value == argument(0) ? 1 : 2)}}};
        STELE_TRY_ASSIGN(const Value one, element.evaluate(scope_));
        return list.add(theirs, one);
      }
      default:
        return {};
    }
  }

  /// Sets the shapes and dtypes of the outputs, as far as the declaration tells.
  Status infer() {
    const auto tensor_of = [&](const std::string& name) -> const TensorName* {
      const auto found = outputs_.find(name);
      return found != outputs_.end() ? std::get_if<TensorName>(&found->second) : nullptr;
    };
    for (const Declaration::Named& shape : declaration_.shapes) {
      const TensorName* const tensor = tensor_of(shape.name);
      if (tensor == nullptr) continue;
      STELE_TRY_ASSIGN(const Value value, shape.value[0].evaluate(scope_));
      if (const auto* extents = std::get_if<Ints>(&value)) to_.refine(tensor->name, DType::none, *extents);
    }
    for (const Declaration::Named& dtype : declaration_.dtypes) {
      const TensorName* const tensor = tensor_of(dtype.name);
      if (tensor == nullptr) continue;
      STELE_TRY_ASSIGN(const Value value, dtype.value[0].evaluate(scope_));
      if (const auto* code = std::get_if<std::int64_t>(&value)) {
        to_.refine(tensor->name, onnx::dtype_of(static_cast<std::uint64_t>(*code)), std::nullopt);
      }
    }
    return {};
  }

  const Declaration& declaration_;
  const FrameworkNode& node_;
  GraphBuilder& to_;
  NodeScope scope_;
  std::map<std::string, Value> outputs_;  // by port: the node's own names
};

}  // namespace

Status run(const Declaration& declaration, const FrameworkNode& node, GraphBuilder& to) {
  return Runner(declaration, node, to).run();
}

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
