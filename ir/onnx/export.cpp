#include "stele/export.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "encodings/onnx/fields.hpp"
#include "encodings/onnx/structure.hpp"
#include "encodings/protobuf/protobuf.hpp"
#include "ir/dl4j/graph_builder.hpp"
#include "ir/dl4j/importer.hpp"
#include "ir/engine/arguments.hpp"
#include "ir/engine/refused.hpp"
#include "ir/onnx/onnx_builder.hpp"
#include "snapshot/data.hpp"
#include "stele/recorders/onnx.hpp"

namespace stele::inline v0 {

namespace {

using namespace detail::ir;  // NOLINT(google-build-using-namespace): implements the public interface of ir
namespace onnx = detail::onnx;
namespace protobuf = detail::protobuf;
using Message = std::vector<std::byte>;

constexpr std::int64_t first_opset = 13, last_opset = 22;
/// IR versions by the version of the operators, starting at first_opset (onnx/helper.py of onnx 1.23).
constexpr std::array<std::uint64_t, 10> ir_versions = {7, 7, 8, 8, 8, 8, 9, 9, 10, 10};
static_assert(ir_versions.size() == last_opset - first_opset + 1);

namespace type_field {
constexpr std::uint32_t tensor_type = 1, elem_type = 1, shape = 2, dim = 1, dim_value = 1;
}
namespace value_field {
constexpr std::uint32_t name = 1, type = 2;
}
namespace attribute_type {
constexpr std::uint64_t type_float = 1, type_int = 2, type_string = 3, type_floats = 6, type_ints = 7, type_strings = 8;
}

void put_message(Message& to, std::uint32_t field, const Message& message) {
  protobuf::put_length(to, field, message.size());
  to.insert(to.end(), message.begin(), message.end());
}

Message attribute_of(const std::string& name, const ExpressionValue& value) {
  using namespace onnx::attribute_field;  // NOLINT(google-build-using-namespace)
  using namespace attribute_type;         // NOLINT(google-build-using-namespace)
  Message to;
  protobuf::put_text(to, onnx::attribute_field::name, name);
  std::uint64_t kind = 0;
  if (const auto* const one = std::get_if<std::int64_t>(&value)) {
    protobuf::put_number(to, i, static_cast<std::uint64_t>(*one));
    kind = type_int;
  } else if (const auto* const real = std::get_if<double>(&value)) {
    protobuf::put_float(to, f, static_cast<float>(*real));
    kind = type_float;
  } else if (const auto* const text = std::get_if<std::string>(&value)) {
    protobuf::put_text(to, s, *text);
    kind = type_string;
  } else if (const auto* const list = std::get_if<Ints>(&value)) {
    for (const std::int64_t n : *list) protobuf::put_number(to, ints, static_cast<std::uint64_t>(n));
    kind = type_ints;
  } else if (const auto* const reals = std::get_if<Reals>(&value)) {
    for (const double n : *reals) protobuf::put_float(to, floats, static_cast<float>(n));
    kind = type_floats;
  } else if (const auto* const texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& t : *texts) protobuf::put_text(to, strings, t);
    kind = type_strings;
  }
  protobuf::put_number(to, type, kind);
  return to;
}

Message node_of(const ModelNode& node) {
  Message to;
  for (const std::string& input : node.inputs) protobuf::put_text(to, onnx::node_field::input, input);
  for (const std::string& output : node.outputs) protobuf::put_text(to, onnx::node_field::output, output);
  protobuf::put_text(to, onnx::node_field::name, node.name);
  protobuf::put_text(to, onnx::node_field::op_type, node.op);
  for (const auto& [name, value] : node.attributes) {
    put_message(to, onnx::node_field::attribute, attribute_of(name, value));
  }
  return to;
}

Message value_info_of(const std::string& name, const TensorInfo& info) {
  Message tensor, type, to;
  protobuf::put_number(tensor, type_field::elem_type, onnx::code_of(info.dtype));
  if (info.shape) {
    Message shape;
    for (const std::int64_t extent : *info.shape) {
      Message dim;
      if (extent >= 0) protobuf::put_number(dim, type_field::dim_value, static_cast<std::uint64_t>(extent));
      put_message(shape, type_field::dim, dim);
    }
    put_message(tensor, type_field::shape, shape);
  }
  put_message(type, type_field::tensor_type, tensor);
  protobuf::put_text(to, value_field::name, name);
  put_message(to, value_field::type, type);
  return to;
}

class Exporter {
 public:
  Exporter(const Checkpoint& model, const ExportOptions& options)
      : model_(model),
        graph_(*model.graph),
        options_(options),
        mappings_(options.mappings != nullptr ? *options.mappings : MappingSet::to_onnx()),
        operators_(options.operators != nullptr ? *options.operators : OperatorSet::nd4j()),
        to_(options.opset, model.parameters, base_parts + 64 * (graph_.operations.size() + graph_.variables.size())) {}

  Status run() {
    STELE_TRY_ASSIGN(const std::vector<std::size_t> order, graph_.order());
    outputs_ = !options_.outputs.empty() ? options_.outputs : !graph_.outputs.empty() ? graph_.outputs : results();
    find_needed(order);
    STELE_TRY(add_variables());
    for (const std::size_t i : order) {
      const GraphOperation& operation = graph_.operations[i];
      if (!needs(operation)) continue;
      const Status done = add(operation);
      if (done) continue;
      Error error = done.error();
      if (error.code() != Errc::unsupported) {
        const std::string path = operation.name + " (" + operation.op_name + ')';
        return std::move(error).path(error.path().empty() ? path : path + ": " + std::string(error.path()));
      }
      refused_.add(operation.name + " (" + operation.op_name + ')', error);
      for (const std::string& output : operation.outputs) {
        if (to_.find(output) == nullptr) static_cast<void>(to_.add_input(output, info_of(output)));
      }
    }
    if (!refused_.empty()) {
      return refused_.error("the graph has operations that stele cannot export")
          .hint("add rules for them with ExportOptions::mappings");
    }
    return finish();
  }

  Result<Report> save(auto write) {
    const OnnxFormat format(OnnxOptions{.model = {}, .external = options_.external},
                            std::make_shared<onnx::Structure>(std::move(structure_)));
    STELE_TRY_ASSIGN(Report report, write(format, initializers_));
    for (const auto& [path, detail] : losses_) report.add(Report::What::lost, path, detail);
    for (const std::string& part : model_.parameters.data()->left_out) {
      if (part != detail::graph_part) report.add(Report::What::lost, "", part);
    }
    if (model_.training) report.add(Report::What::lost, "", detail::training_part);
    if (!model_.optimizer.empty()) report.add(Report::What::lost, "", detail::optimizer_part);
    for (const std::string& path : unused_) report.add(Report::What::unused, path, "no output needs it");
    return report;
  }

 private:
  TensorInfo info_of(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return {};
    TensorInfo info{.dtype = found->second->dtype, .shape = found->second->shape};
    if (info.shape) std::replace(info.shape->begin(), info.shape->end(), std::int64_t{-1}, unknown_extent);
    return info;
  }

  bool needs(const GraphOperation& operation) const {
    return std::any_of(operation.outputs.begin(), operation.outputs.end(),
                       [&](const std::string& name) { return needed_.contains(name); });
  }
  void find_needed(const std::vector<std::size_t>& order) {
    needed_.insert(outputs_.begin(), outputs_.end());
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
      const GraphOperation& operation = graph_.operations[*i];
      if (needs(operation)) needed_.insert(operation.inputs.begin(), operation.inputs.end());
    }
  }

  Status add_variables() {
    for (const GraphVariable& variable : graph_.variables) {
      variables_.emplace(variable.name, &variable);
      to_.reserve(variable.name);
      const bool wanted = options_.outputs.empty() || needed_.contains(variable.name);
      if (variable.kind == VariableKind::placeholder && wanted) {
        inputs_.push_back(variable.name);
        STELE_TRY(to_.add_input(variable.name, info_of(variable.name)));
      }
      const bool controlled = !variable.control_dependencies.empty() || !variable.control_dependencies_of_var.empty();
      if (controlled) losses_.emplace_back(variable.name, "ONNX has no control dependencies");
    }
    for (const std::string& name : graph_.loss_variables) losses_.emplace_back(name, "ONNX does not mark losses");
    for (const auto& [name, graph] : graph_.sub_graphs)
      losses_.emplace_back(name, "a graph that operations call is left out");
    for (std::size_t i = 0; i < model_.parameters.leaf_count(); ++i) {
      const LeafView leaf = model_.parameters.leaf(i);
      STELE_TRY(to_.add_leaf(leaf.path(), leaf));
    }
    return {};
  }

  Status add(const GraphOperation& operation) {
    const OperatorDescriptor* const descriptor = operators_.find(operation.op_name);
    if (descriptor == nullptr) return Error(Errc::unsupported, "no operator has this name");
    if (!operation.control_dependencies.empty() || !operation.var_control_dependencies.empty()) {
      losses_.emplace_back(operation.name, "ONNX has no control dependencies");
    }
    for (const std::string& input : operation.inputs) {
      if (input.empty() || to_.find(input) != nullptr) continue;
      return Error(Errc::malformed, "no earlier operation produces the input").path(input);
    }
    const Declaration* const declaration = mappings_.find("", operation.op_name, options_.opset);
    if (declaration != nullptr) {
      STELE_TRY_ASSIGN(const GraphOperation plain, plain_arguments(operation, *descriptor));
      auto arguments = named(*descriptor, plain);
      if (!arguments) return as_unsupported(arguments.error(), operation);
      STELE_TRY_ASSIGN(ModelNode node, node_of_operation(operation, *descriptor, *declaration, *arguments));
      STELE_TRY(detail::ir::run(*declaration, node, to_));
    } else {
      auto inverted = MappingSet::onnx().inverted(operation, options_.opset, operators_);
      if (!inverted) return as_unsupported(inverted.error(), operation);
      ModelNode node;
      node.name = operation.name;
      node.op = inverted->op;
      node.domain = inverted->domain;
      node.inputs = std::move(inverted->inputs);
      node.outputs = std::move(inverted->outputs);
      for (auto& [name, value] : inverted->attributes) {
        std::visit([&, &n = name](auto& v) { node.attributes[n] = ExpressionValue(std::move(v)); }, value);
      }
      STELE_TRY(to_.emit(std::move(node)));
    }
    for (const std::string& output : operation.outputs) {
      const TensorInfo* const made = to_.find(output);
      if (!needed_.contains(output)) continue;
      if (made == nullptr) return Error(Errc::malformed, "the rule does not produce an output").path(output);
      const TensorInfo known = info_of(output);
      // Casts to the dtype that DL4J's graph declares. Its shapes are often unknown.
      const bool other = made->dtype != DType::none && known.dtype != DType::none && made->dtype != known.dtype;
      const bool own = std::find(operation.inputs.begin(), operation.inputs.end(), output) == operation.inputs.end();
      if (other && own) STELE_TRY(to_.cast(output, known.dtype));
      const TensorInfo& result = *to_.find(output);
      to_.refine(output, known.dtype, result.shape ? result.shape : known.shape);
    }
    return {};
  }

  /// Changes an error to unsupported, and removes the operation from its path: the list of unsupported operations
  /// already names it.
  static Error as_unsupported(const Error& error, const GraphOperation& operation) {
    const std::string own = operation.name + " (" + operation.op_name + ')';
    std::string_view path = error.path();
    if (path.starts_with(own)) path.remove_prefix(std::min(path.size(), own.size() + 2));
    return Error(Errc::unsupported, error.message()).path(path).expected(error.expected()).found(error.found());
  }

  /// Returns an operation as a node whose inputs and attributes have the descriptor's names. Omits outputs that are not
  /// needed.
  Result<ModelNode> node_of_operation(const GraphOperation& operation, const OperatorDescriptor& descriptor,
                                      const Declaration& declaration, const NamedArguments& arguments) const {
    ModelNode node;
    node.name = operation.name;
    node.op = operation.op_name;
    const auto place = [&](const auto& ports, const auto& given, std::vector<std::string>& out, bool all) -> Status {
      const auto is_for = [](const Declaration::Port& port, std::string_view argument) {
        if (argument.starts_with('*')) argument.remove_prefix(1);  // a pointer's name in some descriptors
        return port.name == argument;
      };
      for (const auto& [argument, tensor] : given) {
        const auto port =
            std::find_if(ports.begin(), ports.end(), [&, &a = argument](const auto& p) { return is_for(p, a); });
        if (port == ports.end()) return not_covered("the rule has no such input or output").path(argument);
      }
      for (const Declaration::Port& port : ports) {
        bool any = false;
        for (const auto& [argument, tensor] : given) {
          if (!is_for(port, argument)) continue;
          out.push_back(all || needed_.contains(tensor) ? tensor : std::string());
          any = true;
        }
        if (!any && !port.rest) out.emplace_back();
      }
      return {};
    };
    STELE_TRY(place(declaration.inputs, arguments.inputs, node.inputs, true));
    STELE_TRY(place(declaration.outputs, arguments.outputs, node.outputs, false));
    const auto is_input = [&](const std::string& name) {
      return std::any_of(arguments.inputs.begin(), arguments.inputs.end(),
                         [&](const auto& a) { return a.first == name; });
    };
    std::map<std::string, Ints> ints;
    std::map<std::string, Reals> reals;
    for (const auto& [name, value] : arguments.ints) ints[name].push_back(value);
    for (const auto& [name, value] : arguments.doubles) reals[name].push_back(value);
    const auto add = [&](ArgumentType type, const auto& lists) {
      for (const auto& [name, list] : lists) {
        if (is_input(name)) continue;
        const ArgumentDescriptor* const a = descriptor.find(type, name);
        const bool one = list.size() == 1 && (a == nullptr || !a->repeated);
        node.attributes[name] = one ? ExpressionValue(list.front()) : ExpressionValue(list);
      }
    };
    add(ArgumentType::integer, ints);
    add(ArgumentType::real, reals);
    for (const auto& [name, value] : arguments.bools) node.attributes[name] = value;
    for (const auto& [name, value] : arguments.strings) node.attributes[name] = value;
    for (const auto& [name, value] : arguments.dtypes) node.attributes[name] = std::int64_t{onnx::code_of(value)};
    return node;
  }

  Status finish() {
    structure_.opset = static_cast<std::uint64_t>(options_.opset);
    structure_.ir_version = ir_versions[static_cast<std::size_t>(options_.opset - first_opset)];
    std::unordered_set<std::string_view> made(inputs_.begin(), inputs_.end());
    for (const ModelNode& node : to_.nodes()) made.insert(node.outputs.begin(), node.outputs.end());
    for (const std::string& output : outputs_) {
      if (!made.insert(output).second) continue;
      STELE_TRY(add_constant_output(output));
    }
    to_.drop_unused(outputs_);
    for (const auto& loss : to_.inexact()) losses_.push_back(loss);
    for (const std::string& input : inputs_) {
      STELE_TRY(put_value(onnx::graph_field::input, input));
    }
    for (const std::string& output : outputs_) STELE_TRY(put_value(onnx::graph_field::output, output));
    for (const ModelNode& node : to_.nodes()) put_message(structure_.nodes, onnx::graph_field::node, node_of(node));
    STELE_TRY_ASSIGN(initializers_, to_.initializers());
    const std::unordered_set<std::string> kept = names_of(initializers_);
    for (std::size_t i = 0; i < model_.parameters.leaf_count(); ++i) {
      std::string name = model_.parameters.leaf(i).path();
      if (!kept.contains(name)) unused_.push_back(std::move(name));
    }
    return {};
  }

  /// If the graph names no outputs, exports the variables that no operation reads.
  std::vector<std::string> results() const {
    std::unordered_set<std::string_view> read;
    for (const GraphOperation& operation : graph_.operations)
      read.insert(operation.inputs.begin(), operation.inputs.end());
    std::vector<std::string> names;
    for (const GraphOperation& operation : graph_.operations) {
      for (const std::string& output : operation.outputs) {
        if (!read.contains(output)) names.push_back(output);
      }
    }
    return names;
  }

  /// Copies a parameter that is an output of the graph, because onnxruntime does not accept initializers as outputs.
  Status add_constant_output(const std::string& output) {
    if (to_.find(output) == nullptr)
      return Error(Errc::missing, "no operation produces an output of the graph").path(output);
    losses_.emplace_back(
        output, "an output of the graph cannot be an initializer: " + to_.publish(output) + " has its elements");
    return {};
  }

  Status put_value(std::uint32_t field, const std::string& name) {
    const TensorInfo& info = *to_.find(name);
    if (info.dtype == DType::none) {
      return Error(Errc::missing, "the dtype of an input or output of the graph is unknown").path(name);
    }
    if (!info.shape)
      losses_.emplace_back(name, "onnx.checker requires the rank of inputs and outputs, which is unknown");
    put_message(structure_.values, field, value_info_of(name, info));
    return {};
  }

  const Checkpoint& model_;
  const Graph& graph_;
  const ExportOptions& options_;
  const MappingSet& mappings_;
  const OperatorSet& operators_;
  OnnxBuilder to_;
  std::unordered_map<std::string_view, const GraphVariable*> variables_;
  std::vector<std::string> inputs_, outputs_;
  std::unordered_set<std::string_view> needed_;  // names of variables
  Refused refused_;
  std::vector<std::pair<std::string, std::string>> losses_;
  std::vector<std::string> unused_;
  onnx::Structure structure_;
  Snapshot initializers_;
};

Result<Report> export_with(const Checkpoint& model, const ExportOptions& options, auto write) {
  return detail::guarded([&]() -> Result<Report> {
    if (!model.graph) return Error(Errc::missing, "the checkpoint has no graph");
    if (options.opset < first_opset || options.opset > last_opset) {
      return Error(Errc::invalid_argument, "stele does not write this version of ONNX's operators")
          .expected(std::to_string(first_opset) + " to " + std::to_string(last_opset))
          .found(std::to_string(options.opset));
    }
    Exporter exporter(model, options);
    STELE_TRY(exporter.run());
    return exporter.save(write);
  });
}

}  // namespace

Result<Report> export_onnx(const Checkpoint& model, const std::string& path, const ExportOptions& options) {
  return export_with(model, options, [&](const Format& format, const Snapshot& initializers) {
    return detail::save_object(format, precision_spec<NativePrecision>(), {nullptr, &initializers}, path, options.save);
  });
}

Result<Report> export_onnx(const Checkpoint& model, Sink& sink, const ExportOptions& options) {
  return export_with(model, options, [&](const Format& format, const Snapshot& initializers) {
    return detail::save_object(format, precision_spec<NativePrecision>(), {nullptr, &initializers}, sink, options.save);
  });
}

}  // namespace stele::inline v0
