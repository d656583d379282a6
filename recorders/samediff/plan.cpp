// Plans a model's files before they are written.
#include "plan.hpp"

#include <algorithm>

#include "dl4j/arrays.hpp"
#include "dl4j/checkpoint.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"

namespace stele::inline v0::detail::samediff {

namespace {

Error refuse(Errc code, const char* why, const std::string& name) { return Error(code, why).path(name); }

/// Reads a value as the strings of an array, row by row; sets `shape`. Returns false if the value is not such an array.
bool texts_of_value(const Value& value, std::vector<std::string>& texts, std::vector<std::uint64_t>& shape,
                    std::size_t axis = 0) {
  if (const std::string* text = value.as_string()) {
    texts.push_back(*text);
    return axis == shape.size();
  }
  const auto* list = value.as_list();
  if (list == nullptr || axis > 31) return false;
  if (axis == shape.size()) {
    if (!texts.empty()) return false;
    shape.push_back(list->size());
  }
  if (shape[axis] != list->size()) return false;
  return std::all_of(list->begin(), list->end(),
                     [&](const Value& v) { return texts_of_value(v, texts, shape, axis + 1); });
}

}  // namespace

ModelPlan::ModelPlan(const Checkpoint& checkpoint, SameDiffContainer container, bool inner)
    : checkpoint_(checkpoint),
      parameters_(in_file_order(checkpoint.parameters)),
      paths_(*parameters_.data()),
      container_(container),
      inner_(inner) {}

Status ModelPlan::run() {
  STELE_TRY(check_arrays(graph()));
  for (std::uint32_t i = 0; i < parameters_.leaf_count(); ++i) unused_.emplace(paths_[i], i);
  STELE_TRY(add_graph_variables());
  STELE_TRY(add_other_tensors());
  STELE_TRY(assign_ids());
  STELE_TRY(add_states());
  metadata_ = checkpoint_.parameters.metadata();
  STELE_TRY_ASSIGN(std::string extras, flat_extras(checkpoint_.parameters, [&](const std::string& path, const Value&) {
                     const auto variable = numbers_.find(path);
                     return variable != numbers_.end() && variables_[variable->second].texts;
                   }));
  STELE_TRY(add_flat_key(metadata_, std::move(extras)));
  return {};
}

const Graph& ModelPlan::graph() const {
  static const Graph none;
  return checkpoint_.graph ? *checkpoint_.graph : none;
}

Result<std::size_t> ModelPlan::index_of(const std::string& name, const char* what) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) return refuse(Errc::malformed, what, name);
  return found->second;
}

std::vector<std::size_t> ModelPlan::all_arrays() const {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].has_array()) all.push_back(i);
  }
  return all;
}

std::vector<std::vector<std::size_t>> ModelPlan::shards(std::uint64_t max_bytes) const {
  std::vector<std::vector<std::size_t>> all(1);
  std::uint64_t size = 0;
  for (const std::size_t i : all_arrays()) {
    const PlannedVariable& v = variables_[i];
    std::uint64_t bytes = v.leaf ? leaf(v).byte_size() : 0;
    for (const auto& [key, state] : v.states) bytes += state.byte_size();
    if (!all.back().empty() && (size > max_bytes || bytes > max_bytes - size)) {
      all.emplace_back();
      size = 0;
    }
    all.back().push_back(i);
    size += bytes;
  }
  return all;
}

Status ModelPlan::add_graph_variables() {
  std::map<std::string, std::uint32_t, std::less<>> values;
  const auto nodes = parameters_.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::value) values.emplace(parameters_.path(i), i);
  }
  for (const GraphVariable& v : graph().variables) {
    if (!numbers_.emplace(v.name, variables_.size()).second) {
      return refuse(Errc::duplicate, "two variables have the same name", v.name);
    }
    PlannedVariable& out = variables_.emplace_back(PlannedVariable{v, {}, {}, 0, 0, {}, false});
    if (v.kind != VariableKind::variable && v.kind != VariableKind::constant) {
      if (unused_.contains(v.name))
        return refuse(Errc::not_representable, "the graph computes the variable, so it cannot have a tensor", v.name);
      continue;
    }
    if (const auto leaf = unused_.find(v.name); leaf != unused_.end()) {
      out.leaf = leaf->second;
      unused_.erase(leaf);
      const LeafView view = parameters_.leaf(*out.leaf);
      out.about.dtype = view.dtype();
      out.scalar = v.shape && v.shape->empty() && view.byte_size() == 0;
      if (!out.scalar) out.about.shape.emplace(view.shape().begin(), view.shape().end());
    } else if (const auto value = values.find(v.name); v.dtype == DType::string && value != values.end()) {
      GraphArray array{DType::string, {}, {}, {}};
      if (!texts_of_value(parameters_.value(nodes[value->second]), array.strings, array.shape)) {
        return refuse(Errc::not_representable, "the value of the string constant is not an array of strings", v.name);
      }
      out.texts = std::move(array);
    } else if (!inner_) {
      return refuse(Errc::missing, "the graph's variable has no tensor", v.name);
    }
  }
  return {};
}

Status ModelPlan::add_other_tensors() {
  for (std::uint32_t i = 0; i < parameters_.leaf_count(); ++i) {
    if (!unused_.contains(paths_[i])) continue;
    const LeafView leaf = parameters_.leaf(i);
    GraphVariable about;
    about.name = paths_[i];
    about.kind = VariableKind::variable;
    about.dtype = leaf.dtype();
    about.shape.emplace(leaf.shape().begin(), leaf.shape().end());
    numbers_.emplace(about.name, variables_.size());
    variables_.push_back({std::move(about), i, {}, 0, 0, {}, false});
  }
  return {};
}

Status ModelPlan::assign_ids() {
  // Variables and operations share one counter; an operation's outputs have its id.
  std::int32_t id = 0;
  for (const GraphOperation& o : graph().operations) {
    const std::int32_t own = ++id;
    operation_ids_.push_back(own);
    for (std::size_t k = 0; k < o.outputs.size(); ++k) {
      STELE_TRY_ASSIGN(const std::size_t output, index_of(o.outputs[k], "an output of an operation is not a variable"));
      PlannedVariable& made = variables_[output];
      if (made.id != 0) return refuse(Errc::malformed, "two operations have the variable as an output", o.outputs[k]);
      made.id = own;
      made.output = static_cast<std::int32_t>(k);
    }
  }
  for (PlannedVariable& v : variables_) {
    if (v.id == 0) v.id = ++id;
  }
  return {};
}

Status ModelPlan::add_states() {
  for (const auto& [key, arrays] : checkpoint_.optimizer.kinds()) {
    const Snapshot& sorted = states_.emplace_back(in_file_order(arrays));
    const LeafPaths names(*sorted.data());
    for (std::uint32_t i = 0; i < sorted.leaf_count(); ++i) {
      const std::string name(names[i]);
      const LeafView leaf = sorted.leaf(i);
      const auto found = numbers_.find(name);
      if (found == numbers_.end() || !variables_[found->second].leaf) {
        return refuse(Errc::not_representable, "optimizer state belongs to a tensor that is not a parameter", name)
            .found(key);
      }
      PlannedVariable& v = variables_[found->second];
      STELE_TRY(check_state(name, parameters_.leaf(*v.leaf), leaf));
      v.states.emplace_back(key, leaf);
    }
  }
  return {};
}

}  // namespace stele::inline v0::detail::samediff
