#include "ir/dl4j/importer.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/dl4j/graph_builder.hpp"
#include "ir/engine/arguments.hpp"
#include "ir/engine/engine.hpp"
#include "ir/engine/refused.hpp"

namespace stele::inline v0::detail::ir {

namespace {

/// Maximum number of elements of all computed constants: bounds their memory. DL4J computes the rest.
constexpr std::size_t max_folded_elements = std::size_t{1} << 20;

std::string display(const model::Node& node) { return node.domain.empty() ? node.op : node.domain + '.' + node.op; }

class Importer {
 public:
  Importer(model::Graph model, const MappingSet& rules, const ImportOptions& options, std::uint64_t file_bytes)
      : model_(std::move(model)),
        max_parts_(base_parts + file_bytes / bytes_of_part),
        options_(options),
        mappings_(options.mappings != nullptr ? *options.mappings : rules),
        to_(options.operators != nullptr ? *options.operators : OperatorSet::nd4j(), model_.tensors,
            base_parts + file_bytes) {}

  Result<Checkpoint> run() {
    index_model();
    STELE_TRY(add_inputs());
    STELE_TRY(reserve_outputs_of_nodes());
    Body body{model_.nodes, model_.opsets};
    for (const model::ValueInfo& output : model_.outputs) body.used.insert(output.name);
    STELE_TRY(add_nodes(std::move(body)));
    if (!refused_.empty()) return refused_.error("the model has nodes that stele cannot import").hint(remedy());
    STELE_TRY(add_outputs());
    STELE_TRY_ASSIGN(Checkpoint result, to_.finish());
    if (options_.report != nullptr) report(result.parameters);
    return result;
  }

 private:
  /// The nodes of the model, or of a function for one call, with the names and attributes in their scope.
  struct Body {
    const std::vector<model::Node>& nodes;
    const std::map<std::string, std::int64_t>& opsets;
    const Body* caller = nullptr;  // nullptr for the model
    int depth = 0;
    std::string prefix{};
    std::unordered_map<std::string, std::string> names{};
    std::unordered_map<std::string, const model::Attribute*> attributes{};
    std::unordered_set<std::string_view> used{};  // tensors that a node reads, and the outputs
  };

  void index_model() {
    for (const model::Function& f : model_.functions) functions_.try_emplace(key_of(f.domain, f.name, f.overload), &f);
    for (const model::ValueInfo& value : model_.values) values_.try_emplace(value.name, &value);
    for (const model::ValueInfo& value : model_.outputs) values_.try_emplace(value.name, &value);
    for (std::size_t i = 0; i < model_.tensors.leaf_count(); ++i) {
      std::string name = model_.tensors.leaf(i).path();
      to_.reserve(name);
      leaves_.emplace(std::move(name), i);
    }
  }

  Status add_inputs() {
    for (const model::ValueInfo& input : model_.inputs) {
      if (leaves_.contains(input.name)) continue;  // IR versions below 4 list initializers as inputs
      TensorInfo info{.dtype = input.dtype};
      if (input.dtype == DType::none) {
        return Error(Errc::unsupported, "an input of the model is not a tensor with a dtype that stele supports")
            .path(input.name);
      }
      if (input.has_shape) info.shape = input.shape;
      if (const auto given = options_.shapes.find(input.name); given != options_.shapes.end()) {
        STELE_TRY(check_shape(input, given->second));
        info.shape = given->second;
      }
      if (info.shape) std::replace(info.shape->begin(), info.shape->end(), std::int64_t{-1}, unknown_extent);
      STELE_TRY(to_.add_input(input.name, std::move(info)));
    }
    for (const auto& [name, shape] : options_.shapes) {
      const auto is = [&, &n = name](const model::ValueInfo& v) { return v.name == n; };
      if (std::none_of(model_.inputs.begin(), model_.inputs.end(), is)) {
        return Error(Errc::invalid_argument, "the model has no input of that name").path(name);
      }
    }
    return {};
  }

  static Status check_shape(const model::ValueInfo& input, const std::vector<std::int64_t>& given) {
    bool fits = !input.has_shape || given.size() == input.shape.size();
    for (std::size_t i = 0; fits && input.has_shape && i < given.size(); ++i) {
      fits = given[i] >= -1 && (input.shape[i] == -1 || given[i] == -1 || given[i] == input.shape[i]);
    }
    if (fits) return {};
    return Error(Errc::shape_mismatch, "the shape given for an input does not fit the model's")
        .path(input.name)
        .expected(to_text(input.shape))
        .found(to_text(given));
  }

  Status reserve_outputs_of_nodes() {
    for (const model::Node& node : model_.nodes) {
      for (const std::string& output : node.outputs) {
        to_.reserve(output);
        if (!leaves_.contains(output)) continue;
        return Error(Errc::duplicate, "an output of a node has the name of an initializer").path(output);
      }
    }
    return {};
  }

  Status add_nodes(Body body) {
    for (const model::Node& node : body.nodes) body.used.insert(node.inputs.begin(), node.inputs.end());
    for (const std::size_t place : sorted(body.nodes)) {
      const model::Node& node = body.nodes[place];
      STELE_TRY(spend(1 + node.inputs.size() + node.outputs.size() + node.attributes.size()));
      const Status done = add_node(node, body);
      if (done) continue;
      Error error = done.error();
      if (error.code() != Errc::unsupported) {
        const std::string path = node_name(node, body) + " (" + display(node) + ')';
        return std::move(error).path(error.path().empty() ? path : path + ": " + std::string(error.path()));
      }
      note_unsupported(node, body, error);
    }
    return {};
  }

  /// Returns the indices of the nodes, ordered such that each node follows the nodes that produce its inputs. Keeps the
  /// model's order as far as possible. Nodes in a cycle keep their positions, and their import fails.
  static std::vector<std::size_t> sorted(const std::vector<model::Node>& nodes) {
    std::unordered_map<std::string_view, std::size_t> makers;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const std::string& output : nodes[i].outputs) {
        if (!output.empty()) makers.try_emplace(output, i);
      }
    }
    enum : std::uint8_t { untouched, begun, placed };
    std::vector<std::uint8_t> state(nodes.size(), untouched);
    std::vector<std::size_t> order;
    std::vector<std::pair<std::size_t, std::size_t>> path;  // nodes, each with the index of its next input
    for (std::size_t first = 0; first < nodes.size(); ++first) {
      if (state[first] == untouched) path.emplace_back(first, 0);
      while (!path.empty()) {
        auto& [at, next] = path.back();
        state[at] = begun;
        const std::vector<std::string>& inputs = nodes[at].inputs;
        const auto maker = next < inputs.size() ? makers.find(inputs[next]) : makers.end();
        if (next == inputs.size()) {
          state[at] = placed;
          order.push_back(at);
          path.pop_back();
        } else if (++next; maker != makers.end() && state[maker->second] == untouched) {
          path.emplace_back(maker->second, 0);
        }
      }
    }
    return order;
  }

  /// Adds the result of a node: the nodes of a function, constants, or the operations of a rule.
  Status add_node(const model::Node& from, const Body& body) {
    if (!from.refused.empty()) return Error(Errc::unsupported, from.refused);
    STELE_TRY_ASSIGN(ModelNode node, with_tensors(from, body));
    const auto function = functions_.find(key_of(from.domain, from.op, from.overload));
    if (function != functions_.end()) return expand(*function->second, from, node, body);
    for (const model::Attribute& attribute : from.attributes) {
      STELE_TRY_ASSIGN(ExpressionValue value, value_of(attribute, body));
      if (known(value)) node.attributes[attribute.name] = std::move(value);
    }
    std::vector<Constant> partial;
    STELE_TRY_ASSIGN(const bool done, fold(node, partial));
    if (done) return {};
    STELE_TRY(run_rule(node, body));
    for (const std::string& output : node.outputs) learn(output);
    for (std::size_t i = 0; i < partial.size() && i < node.outputs.size(); ++i) {
      to_.refine(node.outputs[i], std::move(partial[i]));
    }
    return {};
  }

  /// Returns the node with the names of its tensors. Registers the initializers among its inputs.
  Result<ModelNode> with_tensors(const model::Node& from, const Body& body) {
    ModelNode node;
    node.op = from.op;
    node.domain = from.domain;
    node.name = node_name(from, body);
    for (const std::string& input : from.inputs) {
      node.inputs.push_back(tensor_name(input, body));
      STELE_TRY(need(node.inputs.back()));
    }
    for (const std::string& output : from.outputs) {  // omits outputs that no node reads, except the first
      const bool wanted = node.outputs.empty() || body.used.contains(output);
      node.outputs.push_back(wanted ? tensor_name(output, body) : std::string());
    }
    return node;
  }

  static std::string node_name(const model::Node& node, const Body& body) {
    return body.prefix + (!node.name.empty() ? node.name : node.outputs.empty() ? node.op : node.outputs[0]);
  }

  static std::string tensor_name(const std::string& name, const Body& body) {
    if (name.empty()) return name;
    const auto found = body.names.find(name);
    return found != body.names.end() ? found->second : body.prefix + name;
  }

  /// Registers an initializer when a node first needs it, so that an unused dtype that DL4J lacks is not an error.
  Status need(const std::string& name) {
    if (name.empty() || to_.find(name) != nullptr) return {};
    const auto leaf = leaves_.find(name);
    if (leaf == leaves_.end()) return Error(Errc::malformed, "no earlier node produces the input").path(name);
    return to_.add_leaf(name, model_.tensors.leaf(leaf->second));
  }

  Result<ExpressionValue> value_of(const model::Attribute& attribute, const Body& body) {
    if (!attribute.reference.empty()) {
      if (body.caller == nullptr)
        return Error(Errc::malformed, "an attribute outside a function refers to a function's attribute")
            .path(attribute.name);
      const auto found = body.attributes.find(attribute.reference);
      if (found == body.attributes.end()) return ExpressionValue();
      return value_of(*found->second, *body.caller);
    }
    return std::visit(
        [&]<class T>(const T& value) -> Result<ExpressionValue> {
          if constexpr (std::is_same_v<T, std::monostate>) {
            return Error(Errc::unsupported, "an attribute is a graph, or has another kind that is not imported")
                .path(attribute.name);
          } else if constexpr (std::is_same_v<T, float>) {
            return ExpressionValue(double{value});
          } else if constexpr (std::is_same_v<T, std::vector<float>>) {
            return ExpressionValue(std::vector<double>(value.begin(), value.end()));
          } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
            // A list of a TensorFlow model may be a shape with open extents.
            return model_.onnx ? ExpressionValue(value) : value_of_extents(value);
          } else if constexpr (std::is_same_v<T, model::TensorValue>) {
            return ExpressionValue(TensorName{value.leaf});
          } else {
            return ExpressionValue(value);
          }
        },
        attribute.value);
  }

  /// Adds the nodes of a function that `node` calls.
  Status expand(const model::Function& function, const model::Node& from, const ModelNode& node, const Body& caller) {
    if (caller.depth == max_function_depth) {
      return Error(Errc::limit, "function calls are recursive or nested more than 32 deep");
    }
    STELE_TRY(spend(function.inputs.size() + function.outputs.size() + function.defaults.size()));
    Body body{function.nodes, function.opsets, &caller, caller.depth + 1, node.name + '/'};
    for (std::size_t i = 0; i < function.inputs.size(); ++i) {
      body.names[function.inputs[i]] = i < node.inputs.size() ? node.inputs[i] : std::string();
    }
    for (std::size_t i = 0; i < function.outputs.size(); ++i) {
      if (i < node.outputs.size() && !node.outputs[i].empty()) body.names[function.outputs[i]] = node.outputs[i];
    }
    for (const model::Node& inner : function.nodes) {
      STELE_TRY(spend(inner.outputs.size()));
      for (const std::string& output : inner.outputs) {
        if (!output.empty() && !body.names.contains(output)) body.names[output] = to_.fresh(body.prefix + output);
      }
    }
    for (const model::Attribute& attribute : function.defaults) body.attributes[attribute.name] = &attribute;
    for (const model::Attribute& attribute : from.attributes) body.attributes[attribute.name] = &attribute;
    body.used.insert(function.outputs.begin(), function.outputs.end());
    return add_nodes(std::move(body));
  }

  /// Computes a node from constants. Returns false if the operation must run in the graph; `partial` then contains its
  /// outputs if some of their elements are known.
  Result<bool> fold(const ModelNode& node, std::vector<Constant>& partial) {
    if (!model_.onnx || !node.domain.empty()) return false;
    if (node.op == "Constant") return constant(node);
    FoldNode fold;
    fold.op = node.op;
    fold.attributes = &node.attributes;
    for (const std::string& input : node.inputs) {
      fold.inputs.push_back(input.empty() ? nullptr : to_.find(input));
      if (!input.empty() && fold.inputs.back() == nullptr) return false;
    }
    if (const auto found = node.attributes.find("value"); found != node.attributes.end()) {
      if (const auto* tensor = std::get_if<TensorName>(&found->second)) {
        STELE_TRY(need(tensor->name));
        const TensorInfo* const value = to_.find(tensor->name);
        if (!value->constant) return false;
        fold.value = &*value->constant;
      }
    }
    std::size_t work = 1;
    for (const TensorInfo* input : fold.inputs) {
      if (input != nullptr && input->constant) work += input->constant->size();
      if (input != nullptr && input->partial) work += input->partial->size();
    }
    if (!to_.spend(work)) return false;
    STELE_TRY_ASSIGN(auto results, ir::folded(fold));
    if (!results) return false;
    for (const Constant& result : *results) folded_elements_ += result.size();
    if (folded_elements_ > max_folded_elements) return false;
    if (std::any_of(results->begin(), results->end(), is_partial)) {
      partial = std::move(*results);
      return false;
    }
    for (std::size_t i = 0; i < results->size() && i < node.outputs.size(); ++i) {
      STELE_TRY(to_.add_constant(node.outputs[i], std::move((*results)[i])));
    }
    return true;
  }

  Result<bool> constant(const ModelNode& node) {
    if (node.attributes.size() != 1 || node.outputs.size() != 1) {
      return Error(Errc::malformed, "a Constant does not have one attribute and one output");
    }
    const auto& [name, value] = *node.attributes.begin();
    Constant constant;
    const auto fill = [&](DType dtype, auto list, bool scalar) {
      constant.dtype = dtype;
      if (!scalar) constant.shape = {static_cast<std::int64_t>(list.size())};
      constant.elements = std::move(list);
    };
    if (const auto* tensor = std::get_if<TensorName>(&value)) {
      const auto leaf = leaves_.find(tensor->name);
      if (leaf == leaves_.end()) return Error(Errc::malformed, "a Constant has no tensor");
      STELE_TRY(to_.add_leaf(node.outputs[0], model_.tensors.leaf(leaf->second)));
      return true;
    }
    if (const auto* i = std::get_if<std::int64_t>(&value)) {
      fill(DType::i64, std::vector<std::int64_t>{*i}, true);
    } else if (const auto* d = std::get_if<double>(&value)) {
      fill(DType::f32, std::vector<double>{*d}, true);
    } else if (const auto* is = std::get_if<std::vector<std::int64_t>>(&value)) {
      fill(DType::i64, *is, false);
    } else if (const auto* ds = std::get_if<std::vector<double>>(&value)) {
      fill(DType::f32, *ds, false);
    } else {
      return Error(Errc::unsupported, "the elements of a Constant are not numbers").path(name).found("strings");
    }
    STELE_TRY(to_.add_constant(node.outputs[0], std::move(constant)));
    return true;
  }

  Status run_rule(const ModelNode& node, const Body& body) {
    const auto version = body.opsets.find(node.domain);
    if (version == body.opsets.end())
      return Error(Errc::malformed, "the model imports no operators of this domain").found(node.domain);
    const Declaration* const declaration = mappings_.find(node.domain, node.op, version->second);
    if (declaration == nullptr) return Error(Errc::unsupported, "there is no rule for the operator");
    for (const auto& [name, value] : node.attributes) {
      if (const auto* tensor = std::get_if<TensorName>(&value)) STELE_TRY(need(tensor->name));
    }
    return ir::run(*declaration, node, to_);
  }

  /// Uses the model's declared shape and dtype if inference found none.
  void learn(const std::string& name) {
    const auto found = values_.find(name);
    const TensorInfo* const info = to_.find(name);
    if (found == values_.end() || info == nullptr) return;
    const model::ValueInfo& value = *found->second;
    std::optional<std::vector<std::int64_t>> shape = info->shape;
    if (value.has_shape && (!shape || shape->size() == value.shape.size())) {
      if (!shape) shape.emplace(value.shape.size(), unknown_extent);
      for (std::size_t i = 0; i < shape->size(); ++i) {
        if ((*shape)[i] == unknown_extent && value.shape[i] >= 0) (*shape)[i] = value.shape[i];
      }
    }
    to_.refine(name, info->dtype == DType::none ? value.dtype : DType::none, std::move(shape));
  }

  void note_unsupported(const model::Node& node, const Body& body, const Error& error) {
    const auto version = body.opsets.find(node.domain);
    (error.message() == needs_extents ? lacks_extents_ : lacks_rules_) = true;
    // Registers the outputs, so that the nodes that read them are not reported as well.
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      const std::string name = tensor_name(output, body);
      if (to_.find(name) == nullptr) static_cast<void>(to_.add_input(name, {}));
      learn(name);
    }
    std::string row = node_name(node, body) + " (" + display(node);
    if (model_.onnx && version != body.opsets.end()) row += ", version " + std::to_string(version->second);
    refused_.add(row + ')', error);
  }

  Status add_outputs() {
    std::unordered_set<std::string_view> seen;
    for (const model::ValueInfo& value : model_.outputs) {
      const std::string& output = value.name;
      if (!seen.insert(output).second) continue;
      if (to_.find(output) == nullptr && !leaves_.contains(output)) {
        return Error(options_.outputs.empty() ? Errc::malformed : Errc::missing, "no node makes an output of the graph")
            .path(output);
      }
      STELE_TRY(need(output));
      STELE_TRY(to_.output(output));
    }
    return {};
  }

  /// Reports each initializer that is not in the result.
  void report(const Snapshot& result) const {
    const std::unordered_set<std::string> kept = names_of(result);
    for (std::size_t i = 0; i < model_.tensors.leaf_count(); ++i) {
      const std::string name = model_.tensors.leaf(i).path();
      const bool attribute = name.starts_with('\0');  // the tensor of a node's attribute
      if (attribute || kept.contains(name)) continue;
      options_.report->add(Report::What::unused, name,
                           to_.find(name) == nullptr ? "no node reads it" : "no operation needs it at run time");
    }
  }

  std::string remedy() const {
    std::string text;
    if (lacks_extents_) {
      text = "give the shapes of inputs with ImportOptions::shapes";
      std::vector<std::string> inputs;
      for (const model::ValueInfo& input : model_.inputs) inputs.push_back(input.name);
      const std::string list = to_.list_open(inputs);
      if (!list.empty()) text += " (open: " + list + ')';
    }
    if (lacks_rules_) {
      text += (text.empty() ? "" : "; ") + std::string("add rules for them with ImportOptions::mappings");
    }
    return text;
  }

  static std::string key_of(const std::string& domain, const std::string& name, const std::string& overload) {
    return domain + '\n' + name + '\n' + overload;
  }

  Status spend(std::uint64_t parts) {
    parts_ += parts;
    if (parts_ <= max_parts_) return {};
    return Error(Errc::limit, "function calls expand to too many nodes")
        .expected("at most " + std::to_string(max_parts_) + " nodes, inputs, outputs and attributes");
  }

  model::Graph model_;
  std::uint64_t max_parts_;
  const ImportOptions& options_;
  const MappingSet& mappings_;
  GraphBuilder to_;
  std::unordered_map<std::string, std::size_t> leaves_;
  std::unordered_map<std::string, const model::ValueInfo*> values_;
  std::unordered_map<std::string, const model::Function*> functions_;
  Refused refused_;
  bool lacks_extents_ = false, lacks_rules_ = false;
  std::uint64_t parts_ = 0;
  std::size_t folded_elements_ = 0;
};

}  // namespace

Result<Checkpoint> import_graph(model::Graph graph, const MappingSet& rules, const ImportOptions& options,
                                std::uint64_t file_bytes) {
  return Importer(std::move(graph), rules, options, file_bytes).run();
}

}  // namespace stele::inline v0::detail::ir
