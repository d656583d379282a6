#include "ir/builder.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "dl4j/arrays.hpp"
#include "dl4j/arrays_fb.hpp"
#include "stele/precision/convert.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

namespace {

/// Bytes that the snapshot owns.
const LeafOps owned{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};

constexpr std::int32_t all_axes = 2147483647;

bool is_reduction(OpFamily family) noexcept {
  return family == OpFamily::reduce_float || family == OpFamily::reduce_same || family == OpFamily::reduce_long ||
         family == OpFamily::reduce_bool || family == OpFamily::index_reduce;
}

/// Returns the dtype that an argument of an operator names; none: it has no such argument.
DType named_dtype(const GraphOperation& operation, std::string_view argument) {
  const auto found =
      std::find_if(operation.ints.begin(), operation.ints.end(), [&](const auto& a) { return a.first == argument; });
  if (found == operation.ints.end()) return DType::none;
  const auto dtype = samediff::dtype_of(static_cast<stele_fb::Type>(found->second));
  return dtype ? *dtype : DType::none;
}

/// Returns the dtype of an operator's output.
DType output_dtype(const OperatorDescriptor& op, const GraphOperation& operation, std::size_t output, DType first) {
  if (op.name == "cast") return named_dtype(operation, "dst");
  if (op.name == "fill") return named_dtype(operation, "dtype");
  if (op.name == "top_k" && output == 1) return DType::i64;
  constexpr std::array<std::string_view, 8> indices = {"shape_of", "size", "size_at",  "argmax",
                                                       "argmin",   "rank", "where_np", "Where"};
  if (op.declaration == OperatorDeclaration::broadcastable_bool || op.family == OpFamily::transform_bool ||
      op.family == OpFamily::reduce_bool || op.name.starts_with("boolean_")) {
    return DType::boolean;
  }
  if (std::find(indices.begin(), indices.end(), op.name) != indices.end()) return DType::i64;
  if (!operation.dtypes.empty()) return operation.dtypes.front().second;
  return first;
}

}  // namespace

Result<GraphOperation> plain_arguments(GraphOperation operation, const OperatorDescriptor& descriptor) {
  if (is_reduction(descriptor.family)) {
    for (const std::int32_t axis : operation.dimensions) {
      if (axis != all_axes) operation.ints.emplace_back("dimensions", axis);
    }
    operation.dimensions.clear();
    operation.bools.resize(std::min<std::size_t>(operation.bools.size(), 1));  // without newFormat
  } else if (descriptor.family == OpFamily::scalar && operation.scalar) {
    const GraphArray& scalar = *operation.scalar;
    const auto size = byte_length(scalar.dtype, 1);
    double value = 0;
    if (!size || scalar.bytes.size() != *size ||
        convert(scalar.dtype, scalar.bytes.data(), DType::f64, reinterpret_cast<std::byte*>(&value), 1, {}).status !=
            ConvertStatus::ok) {
      return Error(Errc::malformed, "the scalar of an operation is not a number").path(operation.name);
    }
    operation.doubles = {{"", value}};
    operation.scalar.reset();
  }
  return operation;
}

const TensorInfo* GraphBuilder::find(const std::string& name) const {
  const auto found = known_.find(name);
  return found != known_.end() ? &found->second.info : nullptr;
}

Status GraphBuilder::add(const std::string& name, TensorInfo info) {
  if (info.shape && info.shape->size() > static_cast<std::size_t>(max_rank)) {
    return Error(Errc::unsupported, "DL4J has tensors of at most 32 axes").path(name);
  }
  if (!known_.try_emplace(name, Tensor{.info = std::move(info)}).second) {
    return Error(Errc::duplicate, "two tensors of the graph have one name").path(name);
  }
  return {};
}

Status GraphBuilder::add_leaf(const std::string& name, LeafView leaf) {
  if (!samediff::holds(leaf.dtype())) {
    return Error(Errc::unsupported, "DL4J has no such dtype").path(name).found(stele::name(leaf.dtype()));
  }
  TensorInfo info{.dtype = leaf.dtype()};
  info.shape.emplace();
  for (const Extent e : leaf.shape()) info.shape->push_back(static_cast<std::int64_t>(e));
  constexpr std::uint64_t small = 4096;  // bytes; rules see the elements of no larger tensor
  if (leaf.byte_size() <= small) {
    STELE_TRY_ASSIGN(info.constant, constant_of(leaf));
  }
  STELE_TRY(add(name, std::move(info)));
  known_[name].leaf = tensors_.nodes()[leaf.node()].index;
  return {};
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

std::string GraphBuilder::fresh(const std::string& base) {
  std::uint64_t& number = next_[base];
  for (;;) {
    std::string name = number == 0 ? base : base + '_' + std::to_string(number);
    ++number;
    if (!known_.contains(name) && reserved_.insert(name).second) return name;
  }
}

Result<std::string> GraphBuilder::constant(Constant constant) {
  constexpr std::size_t most = std::size_t{1} << 21;
  constant_elements_ += constant.size();
  if (constant_elements_ > most) {
    return Error(Errc::limit, "the rules make constants of too many elements")
        .expected("at most " + std::to_string(most))
        .found(std::to_string(constant_elements_));
  }
  std::string name = fresh("constant");
  Tensor& tensor = known_[name];
  tensor.info.dtype = constant.dtype;
  tensor.info.shape = constant.shape;
  tensor.info.constant = std::move(constant);
  return name;
}

Status GraphBuilder::use(const std::string& name) {
  const auto found = known_.find(name);
  if (found == known_.end()) return Error(Errc::malformed, "an input is made by no earlier node").path(name);
  Tensor& tensor = found->second;
  if (tensor.made) return {};
  if (tensor.leaf == no_index && !tensor.info.constant) {
    return Error(Errc::malformed, "an input is made by no earlier node").path(name);
  }
  tensor.made = true;
  order_.push_back(name);
  GraphVariable& variable = graph_.variables.emplace_back();
  variable.name = name;
  // DL4J trains variables: the floats of the model's own tensors.
  const bool trained = tensor.leaf != no_index && dtype_class(tensor.info.dtype) == DTypeClass::floating;
  variable.kind = trained ? VariableKind::variable : VariableKind::constant;
  variable.dtype = tensor.info.dtype;
  variable.shape = tensor.info.shape;
  return {};
}

Status GraphBuilder::make_legacy(GraphOperation& operation, const OperatorDescriptor& descriptor) const {
  if (is_reduction(descriptor.family)) {
    for (const auto& [name, axis] : operation.ints) operation.dimensions.push_back(static_cast<std::int32_t>(axis));
    operation.ints.clear();
    if (operation.dimensions.empty()) operation.dimensions.push_back(all_axes);
    operation.bools = {{"keepDims", !operation.bools.empty() && operation.bools.front().second}, {"newFormat", true}};
  } else if (descriptor.family == OpFamily::scalar) {
    const TensorInfo* const input = operation.inputs.empty() ? nullptr : find(operation.inputs.front());
    Constant value{.dtype = input != nullptr && input->dtype != DType::none ? input->dtype : DType::f32};
    value.elements = std::vector<double>{operation.doubles.empty() ? 0.0 : operation.doubles.front().second};
    STELE_TRY_ASSIGN(std::vector<std::byte> bytes, bytes_of(value));
    operation.scalar = GraphArray{.dtype = value.dtype, .shape = {}, .bytes = std::move(bytes), .strings = {}};
    operation.doubles.clear();
  }
  return {};
}

/// libnd4j takes one element of a higher rank for a scalar: the other operand gets the rank here.
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

Status GraphBuilder::emit(const OperatorDescriptor& descriptor, const NamedArguments& given, const std::string& node) {
  if (graph_.operations.size() >= max_operations_) {
    return Error(Errc::limit, "the rules make too many operations")
        .expected("at most " + std::to_string(max_operations_));
  }
  STELE_TRY_ASSIGN(const NamedArguments arguments, lifted(descriptor, given, node));
  for (const auto& [argument, name] : arguments.inputs) STELE_TRY(use(name));
  STELE_TRY_ASSIGN(GraphOperation operation, ordered(descriptor, arguments));
  operation.name = node;
  while (!operation_names_.try_emplace(operation.name).second) {
    operation.name = node + '_' + std::to_string(++operation_names_[node]);
  }
  STELE_TRY(make_legacy(operation, descriptor));
  // The input with the dtype of the outputs.
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
  auto node = known_.extract(from);
  node.key() = to;
  known_.insert(std::move(node));
  return true;
}

void GraphBuilder::refine(const std::string& name, DType dtype, std::optional<std::vector<std::int64_t>> shape) {
  const auto found = known_.find(name);
  if (found == known_.end()) return;
  TensorInfo& info = found->second.info;
  if (dtype != DType::none) info.dtype = dtype;
  if (shape && shape->size() <= static_cast<std::size_t>(max_rank)) info.shape = std::move(shape);
}

void GraphBuilder::refine(const std::string& name, Constant partial) {
  if (const auto found = known_.find(name); found != known_.end()) found->second.info.partial = std::move(partial);
}

Status GraphBuilder::output(const std::string& name) {
  STELE_TRY(use(name));
  graph_.outputs.push_back(name);
  return {};
}

/// Drops operations and tensors that no output needs: shapes that were computed at import.
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
    // DL4J takes the variable of an operation's name as its output.
    if (known_.contains(operation.name) && !operation.outputs.empty()) operation.name = operation.outputs.front();
    for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
      operation.output_dtypes[i] = known_[operation.outputs[i]].info.dtype;
    }
  }
  SnapshotBuilder to;
  to.set_flat();
  auto bytes = std::make_shared<std::deque<std::vector<std::byte>>>();
  for (const std::string& name : order_) {
    const Tensor& tensor = known_[name];
    const std::string_view kept = to.intern(name);
    if (tensor.leaf != no_index) {
      const LeafView leaf = tensors_.leaf(tensor.leaf);
      to.tensor(kept, leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
      continue;
    }
    const Constant& constant = *tensor.info.constant;
    auto elements = bytes_of(constant);
    if (!elements) return std::move(elements).error().path(name);
    const std::vector<std::byte>& own = bytes->emplace_back(*std::move(elements));
    const std::vector<Extent> shape(constant.shape.begin(), constant.shape.end());
    to.tensor(kept, constant.dtype, shape, own.size(), {&owned, own.data(), 0});
  }
  to.keep(std::make_shared<const Snapshot>(tensors_));
  to.keep(std::move(bytes));
  to.set_metadata(tensors_.metadata());
  return Checkpoint{.parameters = to.finish(), .graph = std::move(graph_)};
}

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
