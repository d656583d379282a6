#include "ir/tensorflow/flatten.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "dl4j/arrays.hpp"
#include "encodings/onnx/fields.hpp"
#include "ir/dl4j/importer.hpp"
#include "ir/rules/mapping.hpp"
#include "ir/tensorflow/references.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

namespace {

/// Operators whose outputs are their inputs. The resource of a variable represents the variable's tensor.
constexpr std::array<std::string_view, 9> aliases = {
    "Identity", "IdentityN",         "ReadVariableOp",         "StopGradient", "PreventGradient",
    "Snapshot", "DisableCopyOnRead", "PlaceholderWithDefault", "CheckNumerics"};
constexpr std::array<std::string_view, 2> calls = {"PartitionedCall", "StatefulPartitionedCall"};
/// Control flow of TensorFlow 1: conditions and loops consist of these operators.
constexpr std::array<std::string_view, 12> branches = {"Switch",   "RefSwitch", "_SwitchN",      "Merge",
                                                       "RefMerge", "Enter",     "RefEnter",      "Exit",
                                                       "RefExit",  "LoopCond",  "NextIteration", "RefNextIteration"};
constexpr std::array<std::string_view, 7> structured = {"While", "StatelessWhile", "If", "StatelessIf",
                                                        "Case",  "StatelessCase",  "For"};
struct Call;

struct State {
  bool open = true;                    // true until the node is imported
  std::uint32_t node = no_index;       // index in the flat graph
  std::vector<std::string> outputs{};  // names in the flat graph, for nodes that have no index
  std::unique_ptr<Call> callee{};
  const Declaration* declaration = nullptr;
};

/// A body that is being expanded. The outermost body is the graph.
struct Call {
  const Body* body = nullptr;
  std::string prefix{};
  std::vector<std::string> arguments{};  // names in the flat graph
  int depth = 0;
  std::unordered_map<std::uint32_t, State> states{};
};

class Flattener {
 public:
  Flattener(const GraphDef& graph, const SourcePtr& source, IndexBudget& memory, const FlattenOptions& options)
      : graph_(graph),
        options_(options),
        memory_(memory),
        constants_(std::make_shared<Constants>(source, memory)),
        max_parts_(base_parts + source->size() / bytes_of_part) {
    builder_.set_flat();
    builder_.keep(source);
  }

  Result<model::Graph> run() {
    for (const Body& function : graph_.functions) functions_.try_emplace(function.name, &function);
    for (const NodeDef& node : graph_.main.nodes) names_.insert(node.name);
    main_.body = &graph_.main;
    for (const std::string& input : options_.inputs) STELE_TRY(reach(input));
    for (const std::string& output : options_.outputs) STELE_TRY(add_output(output));
    std::sort(inputs_.begin(), inputs_.end());
    for (const std::uint32_t i : inputs_) STELE_TRY(add_input(graph_.main.nodes[i]));
    if (options_.report != nullptr) report();
    out_.opsets[""] = 1;
    builder_.keep(constants_);
    if (options_.owner) builder_.keep(options_.owner());
    out_.tensors = builder_.finish();
    return std::move(out_);
  }

 private:
  struct Frame {
    Call* call;
    std::uint32_t node;
    std::size_t next = 0;  // index of the next input, or of the next result of the callee
  };

  Status spend(std::uint64_t parts, std::uint64_t bytes) {
    parts_ += parts;
    if (parts_ > max_parts_) {
      return Error(Errc::limit, "function calls expand to too many nodes")
          .expected("at most " + std::to_string(max_parts_) + " nodes and inputs");
    }
    if (memory_.take(bytes)) return {};
    return index_error("the model's graph needs more memory than the file's size allows");
  }

  /// Imports the nodes that a tensor of the graph needs, and returns the tensor's name in the flat graph.
  Result<std::string> reach(const std::string& tensor) {
    STELE_TRY_ASSIGN(const Reference ref, reference_of(tensor));
    const auto place = graph_.main.places.find(ref.node);
    if (ref.control || place == graph_.main.places.end()) {
      return Error(Errc::missing, "the graph has no node of this name").path(tensor);
    }
    STELE_TRY(visit(main_, place->second));
    return flat_name(main_, ref);
  }

  Status add_output(const std::string& text) {
    const std::string name = text.ends_with(":0") ? text.substr(0, text.size() - 2) : text;
    STELE_TRY_ASSIGN(std::string reached, reach(name));
    if (reached != name) {  // an argument, a constant or the result of a call needs a node with the output's name
      model::Node node;
      node.name = node.op = "Identity";
      node.inputs = {std::move(reached)};
      node.outputs = {name};
      if (named_.insert(name).second) out_.nodes.push_back(std::move(node));
    }
    out_.outputs.push_back({.name = name, .shape = {}});
    return {};
  }

  Status add_input(const NodeDef& node) {
    model::ValueInfo input;
    input.name = node.name;
    if (const auto* const type = std::get_if<TypeCode>(find(node, "dtype"))) {
      input.dtype = onnx::dtype_of(static_cast<std::uint64_t>(onnx_code(*type)));
    }
    if (const auto* const shape = std::get_if<std::vector<std::int64_t>>(find(node, "shape"))) {
      input.has_shape = true;
      input.shape = *shape;
      std::replace(input.shape.begin(), input.shape.end(), unknown_extent, std::int64_t{-1});
    }
    out_.inputs.push_back(std::move(input));
    return {};
  }

  static const AttributeValue* find(const NodeDef& node, std::string_view name) {
    static const AttributeValue none;
    const AttributeValue* const value = node.find(name);
    return value != nullptr ? value : &none;
  }

  static Result<std::uint32_t> place_of(const Body& body, const Reference& ref) {
    const auto place = body.places.find(ref.node);
    if (place != body.places.end()) return place->second;
    return Error(Errc::malformed, "the input does not name a node of the graph").found(ref.node);
  }
  static std::size_t argument_of(const Body& body, const Reference& ref) {
    if (!ref.port.empty() || ref.control || ref.index != 0) return body.inputs.size();
    const auto found = body.arguments.find(ref.node);
    return found != body.arguments.end() ? found->second : body.inputs.size();
  }

  /// Imports a node after the nodes that it needs. Does not recurse for inputs, so that long chains do not overflow the
  /// stack.
  Status visit(Call& call, std::uint32_t node) {
    std::vector<Frame> frames;
    STELE_TRY(enter(call, node, frames));
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const NodeDef& def = frame.call->body->nodes[frame.node];
      State& state = frame.call->states.at(frame.node);
      const Body* body = frame.call->body;
      Call* in = frame.call;
      std::string_view tensor;
      if (state.callee != nullptr) {
        body = state.callee->body;
        in = state.callee.get();
        if (frame.next == body->outputs.size()) {
          STELE_TRY_ASSIGN(state.outputs, results(*in));
          state.open = false;
          frames.pop_back();
          continue;
        }
        const auto found = body->returns.find(body->outputs[frame.next++]);
        if (found == body->returns.end()) return in_node(call_error(*body), *frame.call, def);
        tensor = found->second;
      } else if (!is_one_of(branches, def.op) && frame.next < def.inputs.size()) {
        tensor = def.inputs[frame.next++];
      } else {
        const Status done = finish(*frame.call, frame.node, def, state);
        if (!done) return in_node(done.error(), *frame.call, def);
        if (state.callee == nullptr) {
          state.open = false;
          frames.pop_back();
        } else {
          frame.next = 0;
        }
        continue;
      }
      const auto ref = reference_of(tensor);
      if (!ref) return in_node(ref.error(), *frame.call, def);
      if (ref->control && state.callee != nullptr) return in_node(call_error(*body), *frame.call, def);
      if (ref->control) {
        controls_.emplace_back(frame.call, ref->node);
        continue;
      }
      if (argument_of(*body, *ref) < body->inputs.size()) continue;
      const auto place = place_of(*body, *ref);
      if (!place) return in_node(place.error(), *frame.call, def);
      STELE_TRY(enter(*in, *place, frames));
    }
    return {};
  }

  static Error call_error(const Body& body) {
    return Error(Errc::malformed, "a function does not return one of its results").found(body.name);
  }

  static Error in_node(Error error, const Call& call, const NodeDef& def) {
    if (!error.path().empty()) return error;
    return std::move(error).path(call.prefix + def.name + " (" + def.op + ')');
  }

  Status enter(Call& call, std::uint32_t node, std::vector<Frame>& frames) {
    const NodeDef& def = call.body->nodes[node];
    const auto [state, fresh] = call.states.try_emplace(node);
    if (!fresh) {
      if (!state->second.open) return {};
      return in_node(Error(Errc::malformed, "a node needs its own output"), call, def);
    }
    STELE_TRY(spend(1 + def.inputs.size(), sizeof(State) + 2 * sizeof(Frame) + 64));
    frames.push_back({&call, node});
    return {};
  }

  /// Imports a node whose inputs are already imported.
  Status finish(Call& call, std::uint32_t at, const NodeDef& def, State& state) {
    if (def.op == "Placeholder" || def.op == "PlaceholderV2") {
      if (&call != &main_) return Error(Errc::malformed, "a function contains a placeholder");
      inputs_.push_back(at);
      state.outputs = {def.name};
      return {};
    }
    if (def.op == "Const") return constant(call, def, state);
    if (is_one_of(variables, def.op)) return variable(call, def, state);
    if (const Body* const function = function_of(def)) return enter_function(call, def, *function, state);
    if (is_one_of(aliases, def.op)) {
      if (def.op == "ReadVariableOp" && assignments_.precede(*call.body, def)) {
        return refuse(call, def, state, "a variable is read after it is assigned");
      }
      for (const std::string& input : def.inputs) {
        STELE_TRY_ASSIGN(const Reference ref, reference_of(input));
        if (ref.control) continue;
        STELE_TRY_ASSIGN(std::string name, flat_name(call, ref));
        state.outputs.push_back(std::move(name));
      }
      return {};
    }
    return plain(call, def, state);
  }

  const Body* function_of(const NodeDef& def) const {
    std::string_view name = def.op;
    if (is_one_of(calls, def.op)) {
      const auto* const given = std::get_if<FunctionName>(find(def, "f"));
      if (given == nullptr) return nullptr;
      name = given->name;
    }
    const auto found = functions_.find(name);
    return found != functions_.end() ? found->second : nullptr;
  }

  Status enter_function(const Call& call, const NodeDef& def, const Body& function, State& state) {
    if (call.depth == max_function_depth) {
      return Error(Errc::limit, "function calls are recursive or nested more than 32 deep").found(function.name);
    }
    auto callee = std::make_unique<Call>();
    callee->body = &function;
    callee->depth = call.depth + 1;
    callee->prefix = call.prefix + def.name + '/';
    for (const std::string& input : def.inputs) {
      STELE_TRY_ASSIGN(const Reference ref, reference_of(input));
      if (ref.control) continue;
      STELE_TRY_ASSIGN(std::string name, flat_name(call, ref));
      STELE_TRY(spend(1, 2 * (sizeof(std::string) + name.size())));
      callee->arguments.push_back(std::move(name));
    }
    if (callee->arguments.size() != function.inputs.size()) {
      return Error(Errc::malformed, "a call does not have the function's number of inputs")
          .expected(std::to_string(function.inputs.size()))
          .found(std::to_string(callee->arguments.size()));
    }
    STELE_TRY(spend(1 + function.outputs.size(), 2 * sizeof(Call) + callee->prefix.size()));
    state.callee = std::move(callee);
    return {};
  }

  /// Returns the names of the tensors that a body returns.
  Result<std::vector<std::string>> results(const Call& call) {
    std::vector<std::string> names;
    for (const std::string& output : call.body->outputs) {
      STELE_TRY_ASSIGN(const Reference ref, reference_of(call.body->returns.at(output)));
      STELE_TRY_ASSIGN(std::string name, flat_name(call, ref));
      STELE_TRY(spend(1, 2 * (sizeof(std::string) + name.size())));
      names.push_back(std::move(name));
    }
    return names;
  }

  /// Returns the name of a tensor in the flat graph. Its node must be imported.
  Result<std::string> flat_name(const Call& call, const Reference& ref) {
    const std::size_t argument = argument_of(*call.body, ref);
    if (argument < call.arguments.size()) return call.arguments[argument];
    STELE_TRY_ASSIGN(const std::uint32_t at, place_of(*call.body, ref));
    const State& state = call.states.at(at);
    const NodeDef& def = call.body->nodes[at];
    STELE_TRY_ASSIGN(const std::size_t index, output_index(def, state, ref));
    if (state.node == no_index) {
      if (index < state.outputs.size()) return state.outputs[index];
      return Error(Errc::malformed, "a node does not have this output").path(def.name).found(std::to_string(index));
    }
    constexpr std::size_t max_outputs = 1 << 16;
    if (index >= max_outputs) return Error(Errc::limit, "a node has too many outputs").path(def.name);
    model::Node& node = out_.nodes[state.node];
    if (index >= node.outputs.size()) {
      STELE_TRY(spend(1, 2 * sizeof(std::string) * (index - node.outputs.size() + 1)));
      node.outputs.resize(index + 1);
    }
    if (node.outputs[index].empty()) node.outputs[index] = node.name + (index != 0 ? ':' + std::to_string(index) : "");
    return node.outputs[index];
  }

  /// Returns the index of an output. Graphs identify outputs by numbers; functions use the operator's output names,
  /// with numbers in lists.
  Result<std::size_t> output_index(const NodeDef& def, const State& state, const Reference& ref) const {
    const auto index = static_cast<std::size_t>(ref.index);
    if (ref.port.empty()) return index;
    if (const Body* const function = function_of(def)) {
      const auto found = std::find(function->outputs.begin(), function->outputs.end(), ref.port);
      if (is_one_of(calls, def.op) || found == function->outputs.end()) return index;
      return index + static_cast<std::size_t>(found - function->outputs.begin());
    }
    if (state.declaration == nullptr) return index;
    const auto& ports = state.declaration->outputs;
    const auto port = std::find_if(ports.begin(), ports.end(), [&](const auto& p) { return p.name == ref.port; });
    if (port != ports.end()) return index + static_cast<std::size_t>(port - ports.begin());
    return Error(Errc::malformed, "an operator has no output of this name").path(def.op).found(ref.port);
  }

  std::string unique(const Call& call, const NodeDef& def) {
    std::string name = call.prefix + def.name;
    if (&call == &main_) return name;
    for (int i = 1; !names_.insert(name).second; ++i) name = call.prefix + def.name + '_' + std::to_string(i);
    return name;
  }

  Status constant(const Call& call, const NodeDef& def, State& state) {
    const auto* const place = std::get_if<ByteRange>(find(def, "value"));
    if (place == nullptr) return Error(Errc::malformed, "a Const has no tensor");
    // The calls of a function share its constants.
    auto& known = constant_names_[place->begin];
    if (known.empty()) {
      auto tensor = constants_->read(*place);
      if (!tensor && tensor.error().code() == Errc::unsupported) {
        return refuse(call, def, state,
                      std::string(tensor.error().message()) + ": " + std::string(tensor.error().found()));
      }
      if (!tensor) return std::move(tensor).error();
      known = unique(call, def);
      builder_.tensor(builder_.intern(known), tensor->dtype, tensor->shape, tensor->bytes, tensor->provider);
      STELE_TRY(spend(1, 512 + 3 * known.size()));
    }
    state.outputs = {known};
    return {};
  }

  Status variable(const Call& call, const NodeDef& def, State& state) {
    std::optional<Constants::Tensor> value;
    if (options_.variable && &call == &main_) {
      STELE_TRY_ASSIGN(value, options_.variable(def.name));
    }
    if (!value)
      return refuse(call, def, state, "the variable has no value here: freeze the graph, or import a SavedModel");
    builder_.tensor(builder_.intern(def.name), value->dtype, value->shape, value->bytes, value->provider);
    STELE_TRY(spend(1, 512 + 3 * def.name.size()));
    state.outputs = {def.name};
    return {};
  }

  /// Adds a node that cannot be imported, with the reason.
  Status refuse(const Call& call, const NodeDef& def, State& state, std::string reason) {
    model::Node node;
    node.name = unique(call, def);
    node.op = def.op;
    node.refused = std::move(reason);
    node.outputs = {node.name};
    state.node = static_cast<std::uint32_t>(out_.nodes.size());
    out_.nodes.push_back(std::move(node));
    return {};
  }

  Status plain(const Call& call, const NodeDef& def, State& state) {
    if (is_one_of(branches, def.op) || is_one_of(structured, def.op)) {
      return refuse(call, def, state, "control flow is not imported");
    }
    if (is_one_of(calls, def.op)) return refuse(call, def, state, "the graph does not have the function that it calls");
    state.declaration = options_.mappings->find("", def.op, 1);
    model::Node node;
    node.name = unique(call, def);
    node.op = def.op;
    for (const std::string& input : def.inputs) {
      STELE_TRY_ASSIGN(const Reference ref, reference_of(input));
      if (ref.control) continue;
      STELE_TRY_ASSIGN(std::string name, flat_name(call, ref));
      node.inputs.push_back(std::move(name));
    }
    for (const auto& [name, value] : def.attributes) {
      if (state.declaration != nullptr) add_attribute(name, value, *state.declaration, node);
    }
    STELE_TRY(spend(1 + node.attributes.size(), 2 * sizeof(node) + 4 * node.name.size() +
                                                    2 * sizeof(model::Attribute) * node.attributes.size() + 256));
    for (const std::string& input : node.inputs) STELE_TRY(spend(0, 2 * (sizeof(std::string) + input.size())));
    node.outputs = {node.name};
    state.node = static_cast<std::uint32_t>(out_.nodes.size());
    out_.nodes.push_back(std::move(node));
    return {};
  }

  static void add_attribute(const std::string& name, const AttributeValue& value, const Declaration& declaration,
                            model::Node& node) {
    model::Attribute to;
    to.name = name;
    const auto* const type = std::get_if<TypeCode>(&value);
    const bool declared = std::any_of(declaration.attributes.begin(), declaration.attributes.end(),
                                      [&](const auto& a) { return a.name == name; });
    if (type != nullptr) {
      if (!declared) return;  // the dtypes of the inputs determine it
      to.value = onnx_code(*type);
    } else {
      std::visit(
          [&]<class T>(const T& v) {
            if constexpr (std::is_constructible_v<decltype(to.value), const T&>) {
              to.value = v;
            } else {
              to.value = std::monostate();
            }
          },
          value);
      if (!declared && std::holds_alternative<std::monostate>(value)) return;  // a list of dtypes
    }
    node.attributes.push_back(std::move(to));
  }

  /// Reports each node that has an effect and only has to run before other nodes, and each variable and constant that
  /// no output needs.
  void report() {
    std::unordered_set<const NodeDef*> seen;
    while (!controls_.empty()) {
      const auto [call, name] = controls_.back();
      controls_.pop_back();
      const auto place = call->body->places.find(name);
      if (place == call->body->places.end() || call->states.contains(place->second)) continue;
      const NodeDef& node = call->body->nodes[place->second];
      if (!seen.insert(&node).second) continue;
      if (node.op == "NoOp") {
        for (const std::string& input : node.inputs) {
          if (input.starts_with('^')) controls_.emplace_back(call, std::string_view(input).substr(1));
        }
      } else if (!is_one_of(aliases, node.op) && node.op != "Const") {
        options_.report->add(Report::What::unused, call->prefix + node.name,
                             node.op + " only has to run before other nodes");
      }
    }
    for (std::uint32_t i = 0; i < graph_.main.nodes.size(); ++i) {
      const NodeDef& node = graph_.main.nodes[i];
      if (main_.states.contains(i) || (node.op != "Const" && !is_one_of(variables, node.op))) continue;
      options_.report->add(Report::What::unused, node.name, "no output needs it");
    }
  }

  const GraphDef& graph_;
  const FlattenOptions& options_;
  IndexBudget& memory_;
  std::shared_ptr<Constants> constants_;
  std::uint64_t max_parts_, parts_ = 0;
  SnapshotBuilder builder_;
  model::Graph out_;
  Call main_;
  std::unordered_map<std::string_view, const Body*> functions_;
  std::unordered_set<std::string> names_, named_;                  // names in the flat graph; names of outputs
  std::unordered_map<std::uint64_t, std::string> constant_names_;  // by the position of the tensor
  std::vector<std::uint32_t> inputs_;
  std::vector<std::pair<const Call*, std::string_view>> controls_;
  Assignments assignments_;
};

}  // namespace

Result<model::Graph> flatten(const GraphDef& graph, const SourcePtr& source, IndexBudget& memory,
                             const FlattenOptions& options) {
  return Flattener(graph, source, memory, options).run();
}

}  // namespace stele::inline v0::detail::ir::tensorflow
