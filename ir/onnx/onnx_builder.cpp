#include "ir/onnx/onnx_builder.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "base/similar.hpp"
#include "encodings/onnx/fields.hpp"
#include "ir/engine/arguments.hpp"
#include "ir/onnx/kernels.hpp"
#include "ir/operators/names.hpp"

namespace stele::inline v0::detail::ir {

namespace {

constexpr std::array<std::string_view, 11> makes_bools = {
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"};
constexpr std::array<std::string_view, 5> makes_indices = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"};

}  // namespace

Status OnnxBuilder::check(const TensorInfo& info) const {
  if (info.dtype == DType::none || onnx::code_of(info.dtype) != 0) return {};
  return Error(Errc::unsupported, "ONNX has no such dtype").found(stele::name(info.dtype));
}

Status OnnxBuilder::add_input(const std::string& name, TensorInfo info) {
  STELE_TRY(add(name, std::move(info)));
  known_[name].made = true;
  return {};
}

Result<const Declaration*> OnnxBuilder::declaration_of(std::string_view op) const {
  const Declaration* const declaration = MappingSet::onnx().find("", std::string(op), opset_);
  if (declaration != nullptr) return declaration;
  std::vector<std::string> names;
  for (const auto& o : MappingSet::onnx().operators()) names.push_back(o.name);
  Error error = Error(Errc::malformed, "the rule names an ONNX operator that stele does not support").path(op);
  const std::string_view near = most_similar(op, names);
  if (!near.empty()) return std::move(error).hint("did you mean " + std::string(near) + '?');
  return error;
}

Status OnnxBuilder::emit(const StepOperation& step) {
  STELE_TRY_ASSIGN(const Declaration* const declaration, declaration_of(step.op));
  ModelNode node;
  node.name = step.name;
  node.op = step.op;
  const auto unknown = [&](const std::string& argument) {
    return Error(Errc::malformed, "the operator has no such argument").path(node.op + '.' + argument);
  };
  std::map<std::string, Tensors> inputs;
  for (const auto& [name, value] : step.arguments) {
    if (!known(value)) continue;
    const bool port = std::any_of(declaration->inputs.begin(), declaration->inputs.end(),
                                  [&, &n = name](const auto& p) { return p.name == n; });
    const bool attribute = std::any_of(declaration->attributes.begin(), declaration->attributes.end(),
                                       [&, &n = name](const auto& a) { return a.name == n; });
    if (const auto* const tensor = std::get_if<TensorName>(&value)) {
      if (!port) return unknown(name);
      if (!tensor->name.empty()) inputs[name].push_back(*tensor);
    } else if (const auto* const tensors = std::get_if<Tensors>(&value)) {
      if (!port) return unknown(name);
      inputs[name].insert(inputs[name].end(), tensors->begin(), tensors->end());
    } else if (attribute) {
      const auto* const truth = std::get_if<bool>(&value);
      node.attributes[name] = truth != nullptr ? ExpressionValue(std::int64_t{*truth ? 1 : 0}) : value;
      if (open(value)) return not_known().path(node.op + '.' + name);
    } else {
      return unknown(name);
    }
  }
  for (const Declaration::Port& port : declaration->inputs) {
    const auto given = inputs.find(port.name);
    const std::size_t n = given != inputs.end() ? given->second.size() : 0;
    if (n == 0 && !port.rest) node.inputs.emplace_back();
    for (std::size_t i = 0; i < n; ++i) node.inputs.push_back(given->second[i].name);
    if (n > 1 && !port.rest)
      return Error(Errc::malformed, "a list is given for one input").path(node.op + '.' + port.name);
  }
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  for (const auto& names : step.outputs) node.outputs.insert(node.outputs.end(), names.begin(), names.end());
  return emit(std::move(node));
}

Status OnnxBuilder::emit(ModelNode node) {
  STELE_TRY_ASSIGN(const Declaration* const declaration, declaration_of(node.op));
  STELE_TRY(count_operation(nodes_.size()));
  for (const std::string& input : node.inputs) {
    if (!input.empty()) STELE_TRY(use(input));
  }
  node.name = unique_operation(node.name);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    STELE_TRY(add(node.outputs[i], {.dtype = dtype_of_output(node, i)}));
    known_[node.outputs[i]].made = true;
  }
  STELE_TRY(infer(*declaration, node, *this));
  return append(std::move(node));
}

DType OnnxBuilder::dtype_of(const std::string& name) const {
  const TensorInfo* const info = find(name);
  return info != nullptr ? info->dtype : DType::none;
}

void OnnxBuilder::append_cast(const std::string& from, const std::string& to) {
  ModelNode node;
  node.name = unique_operation(to);
  node.op = "Cast";
  node.inputs = {from};
  node.outputs = {to};
  node.attributes["to"] = std::int64_t{onnx::code_of(dtype_of(to))};
  nodes_.push_back(std::move(node));
}

Status OnnxBuilder::append(ModelNode node) {
  Operands given;
  for (const std::string& input : node.inputs) given.inputs.push_back(dtype_of(input));
  for (const std::string& output : node.outputs) given.outputs.push_back(dtype_of(output));
  const auto list = [](const Operands& operands) {
    std::string text;
    for (const DType dtype : operands.inputs) {
      if (dtype != DType::none) text += (text.empty() ? "" : ", ") + std::string(stele::name(dtype));
    }
    return text;
  };
  const auto runs = runnable(node.op, opset_, given);
  if (!runs) {
    return Error(Errc::unsupported, "onnxruntime does not run the operator on these dtypes")
        .path(node.op)
        .found(list(given));
  }
  // Adds a tensor like another one, but of another dtype.
  const auto add_like = [&](const std::string& name, DType dtype) -> Result<std::string> {
    std::string other = fresh(name + '/' + std::string(stele::name(dtype)));
    STELE_TRY(add(other, {.dtype = dtype, .shape = find(name)->shape}));
    known_[other].made = true;
    return other;
  };
  std::unordered_map<std::string, std::string> casts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const DType dtype = runs->operands.inputs[i];
    if (dtype == given.inputs[i]) continue;
    std::string& cast = casts[node.inputs[i]];
    if (cast.empty()) {
      STELE_TRY_ASSIGN(cast, add_like(node.inputs[i], dtype));
      append_cast(node.inputs[i], cast);
    }
    node.inputs[i] = cast;
  }
  std::vector<std::pair<std::string, std::string>> results;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const DType dtype = runs->operands.outputs[i];
    if (dtype == given.outputs[i]) continue;
    STELE_TRY_ASSIGN(std::string value, add_like(node.outputs[i], dtype));
    results.emplace_back(value, std::exchange(node.outputs[i], value));
  }
  if (!runs->exact) {
    inexact_[node.name] = "onnxruntime does not run " + node.op + " on " + list(given) + ": the inputs are cast to " +
                          list(runs->operands);
  }
  nodes_.push_back(std::move(node));
  for (const auto& [value, output] : results) append_cast(value, output);
  return {};
}

std::vector<std::pair<std::string, std::string>> OnnxBuilder::inexact() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const ModelNode& node : nodes_) {
    if (const auto found = inexact_.find(node.name); found != inexact_.end()) all.push_back(*found);
  }
  return all;
}

DType OnnxBuilder::dtype_of_output(const ModelNode& node, std::size_t output) const {
  if (is_one_of(makes_bools, node.op)) return DType::boolean;
  if (is_one_of(makes_indices, node.op) || (node.op == "TopK" && output == 1)) return DType::i64;
  if (node.op == "Cast") {
    const auto to = node.attributes.find("to");
    const auto* const code = to != node.attributes.end() ? std::get_if<std::int64_t>(&to->second) : nullptr;
    return code != nullptr ? onnx::dtype_of(static_cast<std::uint64_t>(*code)) : DType::none;
  }
  const std::size_t typed = node.op == "Where" ? 1 : node.op == "OneHot" ? 2 : 0;
  const TensorInfo* const input = typed < node.inputs.size() ? find(node.inputs[typed]) : nullptr;
  return input != nullptr ? input->dtype : DType::none;
}

bool OnnxBuilder::rename(const std::string& from, const std::string& to) {
  if (nodes_.empty() || known_.contains(to)) return false;
  auto& outputs = nodes_.back().outputs;
  const auto made = std::find(outputs.begin(), outputs.end(), from);
  if (made == outputs.end()) return false;
  *made = to;
  move_known(from, to);
  return true;
}

Status OnnxBuilder::cast(const std::string& name, DType dtype) {
  const std::string value = fresh(name + "/value");
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    std::replace(node->inputs.begin(), node->inputs.end(), name, value);
    const auto made = std::find(node->outputs.begin(), node->outputs.end(), name);
    if (made == node->outputs.end()) continue;
    *made = value;
    break;
  }
  move_known(name, value);
  ModelNode node;
  node.name = value;
  node.op = "Cast";
  node.inputs = {value};
  node.outputs = {name};
  node.attributes["to"] = std::int64_t{onnx::code_of(dtype)};
  return emit(std::move(node));
}

std::string OnnxBuilder::publish(const std::string& name) {
  std::string value = fresh(name + "/value");
  move_known(name, value);
  order_.push_back(value);
  Tensor& made = known_[name];
  made.info = known_[value].info;
  made.made = known_[value].made = true;
  ModelNode node;
  node.name = unique_operation(value);
  node.op = "Identity";
  node.inputs = {value};
  node.outputs = {name};
  first_.push_back(std::move(node));
  return value;
}

void OnnxBuilder::drop_unused(const std::vector<std::string>& outputs) {
  std::unordered_set<std::string> needed(outputs.begin(), outputs.end());
  std::vector<ModelNode> kept;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const bool used = std::any_of(node->outputs.begin(), node->outputs.end(),
                                  [&](const std::string& name) { return needed.contains(name); });
    if (!used) continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  for (const ModelNode& node : first_) {
    needed.insert(node.inputs.begin(), node.inputs.end());
    needed.erase(node.outputs.front());
  }
  nodes_ = std::move(first_);
  nodes_.insert(nodes_.end(), std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  std::erase_if(order_, [&](const std::string& name) { return !needed.contains(name); });
}

}  // namespace stele::inline v0::detail::ir
