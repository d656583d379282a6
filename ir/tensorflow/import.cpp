#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ir/importer.hpp"
#include "ir/tensorflow/flatten.hpp"
#include "recorders/tensorflow/bundle.hpp"
#include "stele/bundle.hpp"

namespace stele {
inline namespace v0 {

namespace {

namespace tf = detail::ir::tensorflow;
using detail::tensorflow::open_bundle;

/// The variables of a SavedModel. Its graph assigns them from a checkpoint: RestoreV2 reads tensors by their keys.
class Variables {
 public:
  Variables(const tf::GraphDef& graph, const SourcePtr& graph_source, SourcePtr folder, const LoadOptions& options,
            detail::IndexBudget& memory)
      : graph_(graph),
        constants_(graph_source, memory),
        folder_(std::move(folder)),
        options_(options) {}

  /// Returns a variable's value; nullopt: nothing assigns it, or the checkpoint does not have it.
  Result<std::optional<LeafView>> find(const std::string& node) {
    if (!bundle_) STELE_TRY(open());
    const auto key = keys_.find(node);
    if (key == keys_.end()) return std::optional<LeafView>();
    return bundle_->leaf(key->second);
  }

  std::shared_ptr<const void> owner() const { return bundle_ ? bundle_->snapshot().data() : nullptr; }

 private:
  Status open() {
    auto opened = open_bundle(folder_, options_);
    if (!opened) return std::move(opened).error();
    bundle_ = *std::move(opened);
    // TensorFlow 2 assigns them in a function, TensorFlow 1 in the graph.
    const auto place = graph_.main.places.find(graph_.restore);
    if (place != graph_.main.places.end()) {
      const tf::NodeDef& call = graph_.main.nodes[place->second];
      const auto* const name = call.find("f");
      const auto* const function = name != nullptr ? std::get_if<tf::FunctionName>(name) : nullptr;
      for (const tf::Body& body : graph_.functions) {
        if (function != nullptr && body.name == function->name) return read(body, &call);
      }
    }
    return read(graph_.main, nullptr);
  }

  Status read(const tf::Body& body, const tf::NodeDef* call) {
    for (const tf::NodeDef& node : body.nodes) {
      if ((node.op != "AssignVariableOp" && node.op != "Assign") || node.inputs.size() < 2) continue;
      STELE_TRY_ASSIGN(const auto key, key_of(body, node.inputs[1]));
      if (!key) continue;
      std::string variable = node.inputs[0];
      if (call != nullptr) {
        const auto argument = std::find(body.inputs.begin(), body.inputs.end(), variable) - body.inputs.begin();
        if (static_cast<std::size_t>(argument) >= std::min(body.inputs.size(), call->inputs.size())) continue;
        variable = call->inputs[static_cast<std::size_t>(argument)];
      }
      keys_.try_emplace(std::move(variable), *key);
    }
    return {};
  }

  /// Returns the key of the checkpoint that a tensor is read from; nullopt: it is another tensor.
  Result<std::optional<std::string>> key_of(const tf::Body& body, std::string tensor) {
    for (std::size_t i = 0; i <= body.nodes.size(); ++i) {
      STELE_TRY_ASSIGN(const tf::Reference ref, tf::reference_of(tensor));
      const auto place = body.places.find(ref.node);
      if (place == body.places.end()) break;
      const tf::NodeDef& node = body.nodes[place->second];
      if (node.op == "RestoreV2" && node.inputs.size() >= 3) {
        STELE_TRY_ASSIGN(const auto* const slices, strings(body, node.inputs[2]));
        STELE_TRY_ASSIGN(const auto* const names, strings(body, node.inputs[1]));
        if (names == nullptr || slices == nullptr || ref.index >= names->size()) break;
        const auto k = static_cast<std::size_t>(ref.index);
        if (k < slices->size() && !(*slices)[k].empty()) break;  // a part of a tensor
        return std::optional((*names)[k]);
      }
      if (node.op != "Identity" || node.inputs.empty()) break;
      tensor = node.inputs[0];
    }
    return std::optional<std::string>();
  }

  /// Returns the elements of a constant; nullptr: it is none.
  Result<const std::vector<std::string>*> strings(const tf::Body& body, const std::string& tensor) {
    STELE_TRY_ASSIGN(const tf::Reference ref, tf::reference_of(tensor));
    const auto place = body.places.find(ref.node);
    const auto* const value = place != body.places.end() ? body.nodes[place->second].find("value") : nullptr;
    const auto* const tensor_place = value != nullptr ? std::get_if<tf::Place>(value) : nullptr;
    if (tensor_place == nullptr) return nullptr;
    auto& known = strings_[tensor_place->begin];
    if (known.empty()) {
      STELE_TRY_ASSIGN(known, constants_.strings(*tensor_place));
    }
    return &known;
  }

  const tf::GraphDef& graph_;
  tf::Constants constants_;
  SourcePtr folder_;
  const LoadOptions& options_;
  std::optional<detail::tensorflow::Bundle> bundle_;
  std::unordered_map<std::string, std::string> keys_;  // of the checkpoint, by node
  std::unordered_map<std::uint64_t, std::vector<std::string>> strings_;
};

Error no_signature(const tf::GraphDef& graph, const std::string& name) {
  std::string list;
  for (const auto& [key, signature] : graph.signatures) list += (list.empty() ? "" : ", ") + key;
  return Error(Errc::missing, "the SavedModel has no function of this name")
      .path(name)
      .found(list)
      .hint("set ImportOptions::signature or ImportOptions::outputs");
}

std::string without_zero(const std::string& tensor) {
  return tensor.ends_with(":0") ? tensor.substr(0, tensor.size() - 2) : tensor;
}

Result<Checkpoint> import_opened(SourcePtr source, const ImportOptions& options) {
  SourcePtr folder = source;
  if (source->is_folder()) {
    STELE_TRY_ASSIGN(source, folder->bundle()->open("saved_model.pb"));
  } else if (source->bundle() != nullptr) {
    folder = bundle_source(source->bundle(), source->name());
  }
  const std::uint64_t bytes = source->size();
  detail::IndexBudget memory(options.load.limits, bytes, detail::index_rate::index);
  STELE_TRY_ASSIGN(const tf::GraphDef graph, tf::read_graph_def(source, memory));
  tf::FlattenOptions flatten;
  flatten.mappings = options.mappings != nullptr ? options.mappings : &MappingSet::tensorflow();
  flatten.outputs = options.outputs;
  flatten.report = options.report;
  Variables variables(graph, source, folder, options.load, memory);
  if (graph.saved_model) {
    flatten.variable = [&](const std::string& node) { return variables.find(node); };
    flatten.owner = [&] { return variables.owner(); };
    const auto signature = graph.signatures.find(options.signature);
    if (signature == graph.signatures.end() && options.outputs.empty()) return no_signature(graph, options.signature);
    if (signature != graph.signatures.end() && options.outputs.empty()) {
      for (const auto& [key, tensor] : signature->second.inputs) flatten.inputs.push_back(without_zero(tensor));
      for (const auto& [key, tensor] : signature->second.outputs) flatten.outputs.push_back(without_zero(tensor));
    }
  } else if (flatten.outputs.empty()) {
    flatten.outputs = tf::results_of(graph);
  }
  if (flatten.outputs.empty()) {
    return Error(Errc::missing, "every node of the graph is read by another").hint("set ImportOptions::outputs");
  }
  STELE_TRY_ASSIGN(detail::ir::model::Graph flat, tf::flatten(graph, source, memory, flatten));
  return detail::ir::import_graph(std::move(flat), *flatten.mappings, options, bytes);
}

}  // namespace

Result<Checkpoint> import_tensorflow(const Input& model, const ImportOptions& options) {
  return detail::guarded([&]() -> Result<Checkpoint> {
    STELE_TRY_ASSIGN(SourcePtr source, model.open("", options.load));
    auto imported = import_opened(std::move(source), options);
    if (!imported && imported.error().file().empty()) return std::move(imported).error().file(model.name());
    return imported;
  });
}

}  // namespace v0
}  // namespace stele
