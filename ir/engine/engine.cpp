#include "ir/engine/engine.hpp"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "encodings/onnx/fields.hpp"
#include "ir/engine/node_scope.hpp"
#include "ir/rules/operands.hpp"

namespace stele::inline v0::detail::ir {

namespace {

using Value = ExpressionValue;

constexpr std::int64_t max_passes = 1024;  // bounds the operations of one loop

class Runner {
 public:
  Runner(const Declaration& declaration, const ModelNode& node, Target& to)
      : declaration_(declaration), node_(node), to_(to), scope_(declaration, to) {
    if (to.opset() != 0) scope_.set("opset", to.opset());
  }

  Status run_inference() {
    STELE_TRY(bind());
    return infer();
  }

  Status run() {
    Status done = run_declaration();
    if (done || done.error().message() != not_known().message()) return done;
    const std::string open = to_.list_open(node_.inputs);
    if (open.empty()) return done;
    return not_covered(needs_extents).found(open);
  }

 private:
  Status run_declaration() {
    STELE_TRY(bind());
    STELE_TRY_ASSIGN(const bool computed, compute());
    if (computed) return {};
    STELE_TRY(check_requirements());
    if (declaration_.op_name.empty()) {
      for (std::size_t i = 0; i < declaration_.steps.size();) {
        STELE_TRY_ASSIGN(const std::size_t count, run_steps(i));
        i += count;
      }
    } else {
      STELE_TRY(run_rules());
    }
    STELE_TRY(check_outputs());
    STELE_TRY(infer());
    for (auto& [name, constant] : computed_) {
      if (is_partial(constant)) to_.refine(name, std::move(constant));
    }
    return {};
  }

  Status bind() {
    STELE_TRY(bind_inputs());
    STELE_TRY(bind_attributes());
    return bind_outputs();
  }

  Status bind_inputs() {
    std::size_t i = 0;
    for (const Declaration::Port& port : declaration_.inputs) {
      if (port.rest) {
        const auto after = static_cast<std::size_t>(&declaration_.inputs.back() - &port);  // ports with one input
        Tensors rest;
        for (; i + after < node_.inputs.size(); ++i) rest.push_back({node_.inputs[i]});
        scope_.set(port.name, std::move(rest));
        continue;
      }
      TensorName tensor{i < node_.inputs.size() ? node_.inputs[i] : std::string()};
      if (tensor.name.empty() && !port.optional) return Error(Errc::missing, "an input is not given").path(port.name);
      if (!tensor.name.empty()) inputs_given_.insert(port.name);
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
      if (node_.attributes.contains(attribute.name) || inputs_given_.contains(attribute.name)) continue;
      if (!attribute.value) return Error(Errc::missing, "an attribute is not given").path(attribute.name);
      STELE_TRY_ASSIGN(Value value, attribute.value->evaluate(scope_));
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

  /// Computes the outputs' elements that the declaration specifies. If all elements are known, makes the outputs
  /// constants and returns true.
  Result<bool> compute() {
    std::size_t work = 1;
    for (const std::string& input : node_.inputs) {
      const TensorInfo* const info = declaration_.elements.empty() ? nullptr : to_.find(input);
      if (info != nullptr && info->constant) work += info->constant->size();
      if (info != nullptr && info->partial) work += info->partial->size();
    }
    if (declaration_.elements.empty() || !to_.spend(work)) return false;
    bool all = true;
    for (const auto& [port, output] : outputs_) {
      const auto* const list = std::get_if<Tensors>(&output);
      const std::size_t count = list != nullptr ? list->size() : 1;
      for (std::size_t i = 0; i < count; ++i) {
        const std::string& name = list != nullptr ? (*list)[i].name : std::get<TensorName>(output).name;
        if (name.empty()) continue;
        if (list != nullptr) scope_.set("i", static_cast<std::int64_t>(i));
        auto computed = elements_of(list != nullptr ? port + "[i]" : port);
        auto constant = computed ? *std::move(computed) : std::nullopt;  // after an error, DL4J computes them
        all = all && constant && !is_partial(*constant);
        if (constant) computed_.emplace_back(name, *std::move(constant));
      }
    }
    if (!all) return false;
    for (auto& [name, constant] : computed_) STELE_TRY(to_.add_constant(name, std::move(constant)));
    return true;
  }

  /// Returns the elements that the declaration specifies for an output, with their shape and dtype.
  Result<std::optional<Constant>> elements_of(const std::string& port) {
    const auto value_in = [&](const std::vector<Declaration::Named>& list) -> Result<Value> {
      const auto found = std::find_if(list.begin(), list.end(), [&](const auto& named) { return named.name == port; });
      if (found == list.end()) return Value();
      return found->value->evaluate(scope_);
    };
    STELE_TRY_ASSIGN(const Value value, value_in(declaration_.elements));
    const auto open_elements = open_list_of(value);
    const auto elements = open_elements ? extents_of(value_of(*open_elements)) : std::nullopt;
    if (!elements || elements->size() > max_folded) return std::optional<Constant>();
    STELE_TRY_ASSIGN(const Value shape, value_in(declaration_.shapes));
    const auto* const extents = std::get_if<Ints>(&shape);
    if (extents == nullptr || small_count(*extents) != elements->size()) return std::optional<Constant>();
    STELE_TRY_ASSIGN(const Value dtype, value_in(declaration_.dtypes));
    Constant constant{.shape = *extents, .elements = *elements};
    if (const auto* const code = std::get_if<std::int64_t>(&dtype)) {
      constant.dtype = onnx::dtype_of(static_cast<std::uint64_t>(*code));
    } else if (const TensorInfo* const input = node_.inputs.empty() ? nullptr : to_.find(node_.inputs[0])) {
      constant.dtype = input->dtype;
    }
    const DTypeClass kind = dtype_class(constant.dtype);
    const bool integers =
        kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int || kind == DTypeClass::boolean;
    return integers ? std::optional(std::move(constant)) : std::nullopt;
  }

  Status check_requirements() {
    for (const auto& [text, requirement] : declaration_.requirements) {
      STELE_TRY_ASSIGN(const Value value, requirement.evaluate(scope_));
      const auto* truth = std::get_if<bool>(&value);
      if (truth != nullptr && *truth) continue;
      if (truth == nullptr || asks_what_is_known(requirement)) return not_known().expected(text);
      return not_covered("the rule does not cover this use of the operator").expected(text);
    }
    return {};
  }

  /// Returns true if the value depends on known() or given(), directly or through the rule's definitions.
  bool asks_what_is_known(const Expression& e) const {
    std::unordered_set<std::string_view> seen;
    return asks_what_is_known(e, seen);
  }
  bool asks_what_is_known(const Expression& e, std::unordered_set<std::string_view>& seen) const {
    if (e.kind == Expression::Kind::call && (e.text == "known" || e.text == "given")) return true;
    const auto below = [&](const Expression& part) { return asks_what_is_known(part, seen); };
    if (e.kind == Expression::Kind::name) {
      if (!seen.insert(e.text).second) return false;  // definitions may refer to each other
      const auto define = std::find_if(declaration_.defines.begin(), declaration_.defines.end(),
                                       [&](const auto& d) { return d.name == e.text; });
      return define != declaration_.defines.end() && below(*define->value);
    }
    return std::any_of(e.operands.begin(), e.operands.end(), below);
  }

  /// Runs a step, or several consecutive steps with the same loop variable, pass by pass. Returns the number of steps.
  Result<std::size_t> run_steps(std::size_t first) {
    const std::string& variable = declaration_.steps[first].variable;
    std::size_t end = first + 1;
    while (!variable.empty() && end < declaration_.steps.size() && declaration_.steps[end].variable == variable) ++end;
    const std::span<const Step> steps(declaration_.steps.data() + first, end - first);
    begun_.clear();
    for (const Step& step : steps) {  // a loop without passes produces empty lists
      for (const Step::Output& output : step.outputs) {
        if (!variable.empty() && !scope_.find(output.name)) scope_.set(output.name, Tensors());
      }
    }
    std::int64_t passes = 1;
    for (const Step& step : steps) {
      STELE_TRY_ASSIGN(const std::int64_t n, passes_of(step));
      passes = &step == &steps.front() ? n : std::max(n, passes);
    }
    for (std::int64_t i = 0; i < passes; ++i) {
      if (!variable.empty()) scope_.set(variable, i);
      for (const Step& step : steps) {
        STELE_TRY_ASSIGN(const bool wanted, holds(step));
        if (wanted) STELE_TRY(run_once(step, i));
      }
    }
    return steps.size();
  }

  /// Returns the number of passes. Returns 0 if the number is unknown and the step's condition is false.
  Result<std::int64_t> passes_of(const Step& step) {
    if (step.variable.empty()) return 1;
    STELE_TRY_ASSIGN(const Value value, step.repeats->evaluate(scope_));
    const auto* n = std::get_if<std::int64_t>(&value);
    if (n != nullptr && *n > max_passes) {
      return not_covered("a rule repeats a step too often").expected("at most 1024 times").found(to_text(value));
    }
    if (n != nullptr && *n >= 0) return *n;
    scope_.set(step.variable, Value());
    STELE_TRY_ASSIGN(const bool wanted, holds(step));
    if (!wanted) return 0;
    return not_known().path(step.op_name);
  }

  Result<bool> holds(const Step& step) {
    if (!step.condition) return true;
    STELE_TRY_ASSIGN(const Value value, step.condition->evaluate(scope_));
    if (const auto* b = std::get_if<bool>(&value)) return *b;
    if (const auto* i = std::get_if<std::int64_t>(&value)) return *i != 0;
    return not_known().path(step.op_name);
  }

  Status run_once(const Step& step, std::int64_t i) {
    if (step.op_name == "same" && step.arguments.size() == 1) {
      STELE_TRY_ASSIGN(const bool done, name_tensor(step));
      if (done) return {};
    }
    StepOperation made{.op = step.op_name == "same" ? to_.copy_operator() : std::string_view(step.op_name)};
    for (const Step::Argument& argument : step.arguments) {
      auto value = argument.value.evaluate(scope_);
      if (!value) return in_argument(std::move(value).error(), step.op_name, argument.name);
      made.arguments.emplace_back(step.op_name == "same" ? "input" : argument.name, *std::move(value));
    }
    for (const Step::Output& output : step.outputs) {
      STELE_TRY_ASSIGN(std::vector<std::string> names, output_names(output, !step.variable.empty(), i));
      made.outputs.push_back(std::move(names));
    }
    made.name = operation_name();
    return to_.emit(made);
  }

  /// Runs `same(input: tensor)`, which gives a tensor of the rule another name. Returns false if an operation must copy
  /// the tensor to an output.
  Result<bool> name_tensor(const Step& step) {
    STELE_TRY_ASSIGN(Value value, step.arguments[0].value.evaluate(scope_));
    auto* const tensor = std::get_if<TensorName>(&value);
    if (const auto output = outputs_.find(step.outputs[0].name); output != outputs_.end()) {
      const auto* const name = std::get_if<TensorName>(&output->second);
      if (name == nullptr || tensor == nullptr || !own_.contains(tensor->name)) return false;
      if (!to_.rename(tensor->name, name->name)) return false;
      scope_.set(step.outputs[0].name, *name);
      return true;
    }
    if (!step.variable.empty() && tensor != nullptr) {
      append(step.outputs[0].name, std::move(*tensor));
    } else {
      scope_.set(step.outputs[0].name, std::move(value));
    }
    return true;
  }

  /// Returns the names for an output of a step in pass `i` of a loop.
  Result<std::vector<std::string>> output_names(const Step::Output& output, bool loop, std::int64_t i) {
    std::size_t count = 1;
    if (output.count) {
      STELE_TRY_ASSIGN(const Value value, output.count->evaluate(scope_));
      const auto* n = std::get_if<std::int64_t>(&value);
      if (n == nullptr || *n < 0 || *n > static_cast<std::int64_t>(max_list)) {
        if (n == nullptr) return not_known().path(output.name);
        return not_covered("a step has too many outputs, or a negative number of outputs")
            .path(output.name)
            .found(to_text(value));
      }
      count = static_cast<std::size_t>(*n);
    }
    const bool list = output.count || loop;
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
        names.push_back(at >= all.size() || all[at].name.empty() ? own_name(output.name) : all[at].name);
      }
    }
    if (!list) {
      scope_.set(output.name, TensorName{names[0]});
    } else if (loop) {
      for (const std::string& name : names) append(output.name, {name});
    } else {
      Tensors tensors;
      for (const std::string& name : names) tensors.push_back({name});
      scope_.set(output.name, std::move(tensors));
    }
    return names;
  }

  /// Appends to a list of tensors. The first tensor of a loop starts the list.
  void append(const std::string& list, TensorName tensor) {
    if (begun_.insert(list).second) scope_.set(list, Tensors());
    scope_.append(list, std::move(tensor));
  }

  static Error in_argument(Error error, const std::string& op, const std::string& argument) {
    if (!error.path().empty()) return error;
    return std::move(error).path(op + '.' + argument);
  }

  Status run_rules() {
    STELE_TRY_ASSIGN(const OperatorDescriptor* const descriptor, to_.descriptor_of(declaration_.op_name));
    ArgumentList list(*descriptor);
    for (const Rule& rule : declaration_.rules) STELE_TRY(run_rule(rule, scope_, list));
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

  /// Swaps the inputs that indexOverrides lists.
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

  std::string own_name(const std::string& name) {
    const std::string base = !node_.name.empty() ? node_.name : !node_.outputs.empty() ? node_.outputs[0] : node_.op;
    return *own_.insert(to_.fresh(base + '/' + name)).first;
  }

  std::string operation_name() const {
    if (!node_.name.empty()) return node_.name;
    return node_.outputs.empty() ? node_.op : node_.outputs[0];
  }

  /// Reports a missing output as an error of the rule, because later errors would blame the model.
  Status check_outputs() const {
    for (const auto& [port, output] : outputs_) {
      const auto* const one = std::get_if<TensorName>(&output);
      for (const TensorName& tensor : one != nullptr ? Tensors{*one} : std::get<Tensors>(output)) {
        if (tensor.name.empty() || to_.find(tensor.name) != nullptr) continue;
        return Error(Errc::malformed, "the mapping rule has no step that makes an output here")
            .path(port)
            .expected("a step for " + tensor.name);
      }
    }
    return {};
  }

  /// Sets the shapes and dtypes of the outputs as far as the declaration specifies them.
  Status infer() {
    for (const Declaration::Named& shape : declaration_.shapes) STELE_TRY(infer(shape, true));
    for (const Declaration::Named& dtype : declaration_.dtypes) STELE_TRY(infer(dtype, false));
    return {};
  }

  /// Sets the shape or dtype of an output, or of each output in a list: `name[i] = EXPRESSION`.
  Status infer(const Declaration::Named& named, bool is_shape) {
    const bool list = named.name.ends_with("[i]");
    const auto found = outputs_.find(list ? named.name.substr(0, named.name.size() - 3) : named.name);
    if (found == outputs_.end() || list != std::holds_alternative<Tensors>(found->second)) return {};
    const auto* const all = std::get_if<Tensors>(&found->second);
    for (std::size_t i = 0; i < (list ? all->size() : 1); ++i) {
      const std::string& tensor = list ? (*all)[i].name : std::get<TensorName>(found->second).name;
      if (list) scope_.set("i", static_cast<std::int64_t>(i));
      STELE_TRY_ASSIGN(const Value value, named.value->evaluate(scope_));
      auto extents = extents_of(value);
      const auto* const code = std::get_if<std::int64_t>(&value);
      if (is_shape && extents) to_.refine(tensor, DType::none, *std::move(extents));
      if (!is_shape && code != nullptr) {
        to_.refine(tensor, onnx::dtype_of(static_cast<std::uint64_t>(*code)), std::nullopt);
      }
    }
    return {};
  }

  const Declaration& declaration_;
  const ModelNode& node_;
  Target& to_;
  NodeScope scope_;
  std::map<std::string, Value> outputs_;          // the names of the node's outputs, by port
  std::unordered_set<std::string> own_;           // names of the rule's intermediate tensors
  std::unordered_set<std::string> inputs_given_;  // the ports of given inputs: an attribute may have the same name
  std::unordered_set<std::string> begun_;         // lists that the current loop has started
  std::vector<std::pair<std::string, Constant>> computed_;  // outputs with known elements
};

}  // namespace

Status run(const Declaration& declaration, const ModelNode& node, Target& to) {
  return Runner(declaration, node, to).run();
}

Status infer(const Declaration& declaration, const ModelNode& node, Target& to) {
  return Runner(declaration, node, to).run_inference();
}

}  // namespace stele::inline v0::detail::ir
