#include "ir/dl4j/graph_builder.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/similar.hpp"
#include "dl4j/arrays.hpp"
#include "dl4j/arrays_fb.hpp"
#include "ir/engine/arguments.hpp"
#include "ir/operators/names.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::ir {

namespace {

constexpr std::int32_t all_axes = 2147483647;

bool is_reduction(OpFamily family) noexcept {
  return family == OpFamily::reduce_float || family == OpFamily::reduce_same || family == OpFamily::reduce_long ||
         family == OpFamily::reduce_bool || family == OpFamily::index_reduce;
}

bool is_scalar(OpFamily family) noexcept { return family == OpFamily::scalar || family == OpFamily::scalar_bool; }

/// Returns the dtype that an argument of an operation names, or none if the operation has no such argument.
DType named_dtype(const GraphOperation& operation, std::string_view argument) {
  const auto found =
      std::find_if(operation.ints.begin(), operation.ints.end(), [&](const auto& a) { return a.first == argument; });
  if (found == operation.ints.end()) return DType::none;
  const auto dtype = samediff::dtype_of(static_cast<stele_fb::Type>(found->second));
  return dtype ? *dtype : DType::none;
}

/// Replaces colons, because DL4J interprets `name:0` as an output of the operation `name`.
std::string without_colons(std::string name) {
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

/// Operators that libnd4j does not run on bools.
constexpr std::array<std::string_view, 13> no_bools = {
    "dynamic_partition", "embedding_lookup",  "fill",  "gather",  "gather_nd", "reverse_sequence",
    "scatter_nd",        "scatter_nd_update", "split", "split_v", "unique",    "unstack",
    "unique_with_counts"};

/// Returns true for outputs that are positions or counts.
bool is_index(const OperatorDescriptor& op, std::size_t output) {
  constexpr std::array<std::string_view, 4> with_indices = {"top_k", "unique", "unique_with_counts", "listdiff"};
  return output != 0 && is_one_of(with_indices, op.name);
}

/// Returns the dtype of an operator's output.
DType output_dtype(const OperatorDescriptor& op, const GraphOperation& operation, std::size_t output, DType first) {
  if (op.name == "cast") return named_dtype(operation, "dst");
  if (op.name == "fill") return named_dtype(operation, "dtype");
  if (op.name.starts_with("non_max_suppression")) return DType::i32;
  if (is_index(op, output)) return DType::i64;
  constexpr std::array<std::string_view, 8> indices = {"shape_of", "size", "size_at",  "argmax",
                                                       "argmin",   "rank", "where_np", "Where"};
  if (op.declaration == OperatorDeclaration::broadcastable_bool || op.family == OpFamily::transform_bool ||
      op.family == OpFamily::reduce_bool || op.name.starts_with("boolean_")) {
    return DType::boolean;
  }
  if (is_one_of(indices, op.name)) return DType::i64;
  if (!operation.dtypes.empty()) return operation.dtypes.front().second;
  return first;
}

/// Returns the value of an array with one number; nullopt for other arrays.
std::optional<double> number_of(const GraphArray& array) {
  const auto size = byte_length(array.dtype, 1);
  if (!size || array.bytes.size() != *size) return std::nullopt;
  const auto read = [&]<class T>(DType as, T value) -> std::optional<double> {
    auto* const bytes = reinterpret_cast<std::byte*>(&value);
    if (convert(array.dtype, array.bytes.data(), as, bytes, 1, {}).status != ConvertStatus::ok) return std::nullopt;
    return static_cast<double>(value);
  };
  const DTypeClass kind = dtype_class(array.dtype);
  const bool integer = kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int;
  return integer ? read(DType::i64, std::int64_t{0}) : read(DType::f64, 0.0);
}

/// Adds the booleans of these legacy operations, because DL4J's files store them only as properties.
void add_bools_of_properties(GraphOperation& operation, const OperatorDescriptor& descriptor) {
  if (!operation.bools.empty()) return;
  for (const ArgumentDescriptor& a : descriptor.arguments) {
    if (a.type != ArgumentType::boolean) continue;
    const auto found = std::find_if(operation.properties.begin(), operation.properties.end(),
                                    [&](const GraphProperty& p) { return p.name == a.name && !p.bools.empty(); });
    operation.bools.emplace_back(a.name, found != operation.properties.end() && found->bools.front());
  }
}

}  // namespace

Result<GraphOperation> plain_arguments(GraphOperation operation, const OperatorDescriptor& descriptor) {
  const bool several = descriptor.family == OpFamily::summary_stats || descriptor.family == OpFamily::reduce_3;
  if (is_reduction(descriptor.family) || several) {
    for (const std::int32_t axis : operation.dimensions) {
      if (axis != all_axes) operation.ints.emplace_back("dimensions", axis);
    }
    operation.dimensions.clear();
    if (several) {
      add_bools_of_properties(operation, descriptor);
    } else {
      operation.bools.resize(std::min<std::size_t>(operation.bools.size(), 1));  // drops newFormat
    }
  } else if (is_scalar(descriptor.family) && operation.scalar) {
    const GraphArray& scalar = *operation.scalar;
    const std::optional<double> value = number_of(scalar);
    if (!value) {
      return Error(Errc::malformed, "the scalar of an operation is not a number").path(operation.name);
    }
    operation.doubles = {{"", *value}};
    operation.scalar.reset();
  }
  return operation;
}

Status GraphBuilder::add_input(const std::string& name, TensorInfo info) {
  GraphVariable& variable = graph_.variables.emplace_back();
  variable.name = name;
  variable.kind = VariableKind::placeholder;
  variable.dtype = info.dtype;
  if (info.shape) {
    variable.shape = *info.shape;
    std::replace(variable.shape->begin(), variable.shape->end(), unknown_extent, std::int64_t{-1});
  }
  STELE_TRY(add(name, std::move(info)));
  known_[name].made = true;
  return {};
}

Status GraphBuilder::check(const TensorInfo& info) const {
  if (info.dtype != DType::none && !samediff::holds(info.dtype)) {
    return Error(Errc::unsupported, "DL4J has no such dtype").found(stele::name(info.dtype));
  }
  if (info.shape && info.shape->size() > static_cast<std::size_t>(max_rank)) {
    return Error(Errc::unsupported, "DL4J has tensors of at most 32 axes");
  }
  return {};
}

void GraphBuilder::take(const std::string& name, const Tensor& tensor) {
  GraphVariable& variable = graph_.variables.emplace_back();
  variable.name = name;
  // DL4J trains variables, so the model's floating-point tensors become variables.
  const bool trained = tensor.leaf != no_index && dtype_class(tensor.info.dtype) == DTypeClass::floating;
  variable.kind = trained ? VariableKind::variable : VariableKind::constant;
  variable.dtype = tensor.info.dtype;
  variable.shape = tensor.info.shape;
}

Result<const OperatorDescriptor*> GraphBuilder::descriptor_of(std::string_view name) const {
  const OperatorDescriptor* const descriptor = operators_.find(name);
  if (descriptor != nullptr) return descriptor;
  std::vector<std::string> names;
  for (const OperatorDescriptor& o : operators_.all()) names.push_back(o.name);
  Error error = Error(Errc::malformed, "the rule names an operator that DL4J does not have").path(name);
  const std::string_view near = most_similar(name, names);
  if (!near.empty()) return std::move(error).hint("did you mean " + std::string(near) + '?');
  return error;
}

Status GraphBuilder::emit(const StepOperation& step) {
  STELE_TRY_ASSIGN(const OperatorDescriptor* const descriptor, descriptor_of(step.op));
  ArgumentList list(*descriptor);
  for (const auto& [name, value] : step.arguments) STELE_TRY(list.add(name, value));
  std::vector<const ArgumentDescriptor*> ports;
  for (const ArgumentDescriptor& a : descriptor->arguments) {
    if (a.type == ArgumentType::output) ports.push_back(&a);
  }
  for (std::size_t k = 0; k < step.outputs.size(); ++k) {
    if (k >= ports.size()) return Error(Errc::malformed, "the operator has fewer outputs than the step").path(step.op);
    for (const std::string& name : step.outputs[k]) list.arguments.outputs.emplace_back(ports[k]->name, name);
  }
  return emit(*descriptor, list.arguments, step.name);
}

Status GraphBuilder::make_legacy(GraphOperation& operation, const OperatorDescriptor& descriptor) const {
  if (is_reduction(descriptor.family)) {
    for (const auto& [name, axis] : operation.ints) operation.dimensions.push_back(static_cast<std::int32_t>(axis));
    operation.ints.clear();
    if (operation.dimensions.empty()) operation.dimensions.push_back(all_axes);
    operation.bools = {{"keepDims", !operation.bools.empty() && operation.bools.front().second}, {"newFormat", true}};
  } else if (is_scalar(descriptor.family)) {
    const TensorInfo* const input = operation.inputs.empty() ? nullptr : find(operation.inputs.front());
    Constant value{.dtype = input != nullptr && input->dtype != DType::none ? input->dtype : DType::f32};
    value.elements = std::vector<double>{operation.doubles.empty() ? 0.0 : operation.doubles.front().second};
    STELE_TRY_ASSIGN(std::vector<std::byte> bytes, bytes_of(value));
    operation.scalar = GraphArray{.dtype = value.dtype, .shape = {}, .bytes = std::move(bytes), .strings = {}};
    operation.doubles.clear();
  }
  return {};
}

/// Gives the other operand the rank of a one-element operand, because libnd4j treats the latter as a scalar.
Result<NamedArguments> GraphBuilder::lifted(const OperatorDescriptor& descriptor, NamedArguments arguments,
                                            const std::string& node) {
  const bool broadcasts = descriptor.declaration == OperatorDeclaration::broadcastable ||
                          descriptor.declaration == OperatorDeclaration::broadcastable_bool;
  if (!broadcasts || arguments.inputs.size() != 2) return arguments;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    const TensorInfo* const small = find(arguments.inputs[i].second);
    const TensorInfo* const one = find(arguments.inputs[1 - i].second);
    if (small == nullptr || one == nullptr || !small->shape || !one->shape) continue;
    const std::size_t rank = one->shape->size();
    const auto open = std::count(small->shape->begin(), small->shape->end(), unknown_extent);
    if (small->shape->size() >= rank || small_count(*one->shape) != 1 || open > 1) continue;
    std::vector<std::int64_t> shape(rank - small->shape->size(), 1);
    for (const std::int64_t extent : *small->shape) shape.push_back(extent == unknown_extent ? -1 : extent);
    const OperatorDescriptor* const reshape = operators_.find("reshape");
    if (reshape == nullptr) continue;
    NamedArguments to;
    const std::string name = fresh(node + "/lifted");
    Constant target{.dtype = DType::i64, .shape = {static_cast<std::int64_t>(rank)}, .elements = std::move(shape)};
    STELE_TRY_ASSIGN(std::string wanted, constant(std::move(target)));
    to.inputs = {{"input", arguments.inputs[i].second}, {"shape", std::move(wanted)}};
    to.outputs = {{"outputs", name}};
    STELE_TRY(emit(*reshape, to, node));
    arguments.inputs[i].second = name;
  }
  return arguments;
}

bool GraphBuilder::moves_bools(const OperatorDescriptor& descriptor, const NamedArguments& arguments) const {
  if (!is_one_of(no_bools, descriptor.name)) return false;
  constexpr auto boolean = static_cast<std::int64_t>(stele_fb::Type::boolean);
  return std::any_of(arguments.inputs.begin(), arguments.inputs.end(),
                     [&](const auto& input) {
                       const TensorInfo* const info = find(input.second);
                       return info != nullptr && info->dtype == DType::boolean;
                     }) ||
         std::find(arguments.ints.begin(), arguments.ints.end(), std::pair(std::string("dtype"), boolean)) !=
             arguments.ints.end();
}

Status GraphBuilder::emit_on_bytes(const OperatorDescriptor& descriptor, NamedArguments arguments,
                                   const std::string& node) {
  for (auto& [argument, name] : arguments.inputs) {
    const TensorInfo* const info = find(name);
    if (info == nullptr || info->dtype != DType::boolean) continue;
    std::string bytes = fresh(name + "/bytes");
    STELE_TRY(emit_cast(name, bytes, DType::i8, node));
    name = std::move(bytes);
  }
  for (auto& [argument, value] : arguments.ints) {
    if (argument == "dtype") value = static_cast<std::int64_t>(samediff::type_of(DType::i8));
  }
  const auto outputs = arguments.outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_index(descriptor, i)) arguments.outputs[i].second = fresh(outputs[i].second + "/bytes");
  }
  STELE_TRY(emit(descriptor, arguments, node));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (is_index(descriptor, i)) continue;
    refine(arguments.outputs[i].second, DType::i8, std::nullopt);
    STELE_TRY(emit_cast(arguments.outputs[i].second, outputs[i].second, DType::boolean, node));
  }
  return {};
}

Status GraphBuilder::emit_cast(const std::string& from, const std::string& to, DType dtype, const std::string& node) {
  STELE_TRY_ASSIGN(const OperatorDescriptor* const cast, descriptor_of("cast"));
  NamedArguments arguments;
  arguments.inputs = {{"input", from}};
  arguments.outputs = {{"outputs", to}};
  arguments.ints = {{"dst", static_cast<std::int64_t>(samediff::type_of(dtype))}};
  return emit(*cast, arguments, node);
}

Status GraphBuilder::emit(const OperatorDescriptor& descriptor, const NamedArguments& given, const std::string& node) {
  if (moves_bools(descriptor, given)) return emit_on_bytes(descriptor, given, node);
  STELE_TRY(count_operation(graph_.operations.size()));
  STELE_TRY_ASSIGN(const NamedArguments arguments, lifted(descriptor, given, node));
  for (const auto& [argument, name] : arguments.inputs) STELE_TRY(use(name));
  for (const auto& [argument, value] : arguments.ints) {
    if (value == static_cast<std::int32_t>(value)) continue;
    return not_covered("libnd4j supports only 32-bit integers")
        .path(descriptor.name + '.' + argument)
        .found(std::to_string(value));
  }
  STELE_TRY_ASSIGN(GraphOperation operation, ordered(descriptor, arguments));
  operation.name = unique_operation(without_colons(node));
  STELE_TRY(make_legacy(operation, descriptor));
  // This input determines the dtype of the outputs.
  const std::size_t typed = descriptor.name == "select" || descriptor.name == "lstmBlock" ? 1 : 0;
  const TensorInfo* const input = typed < operation.inputs.size() ? find(operation.inputs[typed]) : nullptr;
  for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
    const std::string& name = operation.outputs[i];
    const DType dtype = output_dtype(descriptor, operation, i, input != nullptr ? input->dtype : DType::none);
    STELE_TRY(add(name, {.dtype = dtype}));
    known_[name].made = true;
    GraphVariable& variable = graph_.variables.emplace_back();
    variable.name = name;
    variable.dtype = dtype;
    operation.output_dtypes.push_back(dtype);
  }
  graph_.operations.push_back(std::move(operation));
  return {};
}

bool GraphBuilder::rename(const std::string& from, const std::string& to) {
  if (graph_.operations.empty() || known_.contains(to)) return false;
  GraphOperation& last = graph_.operations.back();
  const auto made = std::find(last.outputs.begin(), last.outputs.end(), from);
  if (made == last.outputs.end()) return false;
  *made = to;
  std::find_if(graph_.variables.rbegin(), graph_.variables.rend(), [&](const auto& v) {
    return v.name == from;
  })->name = to;
  move_known(from, to);
  return true;
}

Status GraphBuilder::output(const std::string& name) {
  STELE_TRY(use(name));
  graph_.outputs.push_back(name);
  return {};
}

/// Drops operations and tensors that no output needs, such as shapes that were computed at import.
void GraphBuilder::drop_unused() {
  std::unordered_set<std::string_view> needed(graph_.outputs.begin(), graph_.outputs.end());
  std::vector<GraphOperation> kept;
  for (auto operation = graph_.operations.rbegin(); operation != graph_.operations.rend(); ++operation) {
    const bool used = std::any_of(operation->outputs.begin(), operation->outputs.end(),
                                  [&](const std::string& name) { return needed.contains(name); });
    if (!used) continue;
    needed.insert(operation->inputs.begin(), operation->inputs.end());
    kept.push_back(std::move(*operation));
    needed.insert(kept.back().outputs.begin(), kept.back().outputs.end());
  }
  std::reverse(kept.begin(), kept.end());
  std::erase_if(graph_.variables, [&](const GraphVariable& variable) {
    return variable.kind != VariableKind::placeholder && !needed.contains(variable.name);
  });
  std::erase_if(order_, [&](const std::string& name) { return !needed.contains(name); });
  graph_.operations = std::move(kept);
}

Result<Checkpoint> GraphBuilder::finish() {
  drop_unused();
  for (GraphVariable& variable : graph_.variables) {
    const auto& info = known_[variable.name].info;
    if (variable.kind != VariableKind::array) continue;
    variable.dtype = info.dtype;
    variable.shape = info.shape;
    if (variable.shape) std::replace(variable.shape->begin(), variable.shape->end(), unknown_extent, std::int64_t{-1});
  }
  for (GraphOperation& operation : graph_.operations) {
    // DL4J treats the variable with an operation's name as the operation's output.
    if (known_.contains(operation.name) && !operation.outputs.empty()) {
      const std::string& first = operation.outputs.front();
      operation.name = first.find(':') == first.npos ? first : fresh(operation.name);
    }
    for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
      operation.output_dtypes[i] = known_[operation.outputs[i]].info.dtype;
    }
  }
  STELE_TRY_ASSIGN(Snapshot parameters, snapshot(order_));
  return Checkpoint{.parameters = std::move(parameters), .graph = std::move(graph_)};
}

}  // namespace stele::inline v0::detail::ir
