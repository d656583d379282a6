#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "encodings/tensor_bundle/bundle.hpp"
#include "encodings/tensor_bundle/slices.hpp"
#include "ir/dl4j/importer.hpp"
#include "ir/tensorflow/flatten.hpp"
#include "ir/tensorflow/references.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0 {

namespace {

namespace tf = detail::ir::tensorflow;
using detail::tensorflow::open_bundle;

/// The variables of a SavedModel. Its graph assigns them from a checkpoint, whose tensors RestoreV2 reads by key.
class Variables {
 public:
  Variables(const tf::GraphDef& graph, const SourcePtr& graph_source, SourcePtr folder, const LoadOptions& options,
            detail::IndexBudget& memory)
      : graph_(graph), constants_(graph_source, memory), folder_(std::move(folder)), options_(options) {}

  /// Returns a variable's value, or nullopt if no node assigns it or the checkpoint does not have it.
  Result<std::optional<tf::Constants::Tensor>> find(const std::string& node) {
    if (!bundle_) STELE_TRY(open());
    using Found = std::optional<tf::Constants::Tensor>;
    const auto from = keys_.find(node);
    if (from == keys_.end()) return Found();
    const auto& [key, slice] = from->second;
    const auto part = slice_of(slice);
    const auto* const entry = slice.empty() ? bundle_->find(key)
                              : part        ? bundle_->find(detail::tensorflow::slice_key(key, *part))
                                            : nullptr;
    if (entry == nullptr || entry->has_strings()) return Found();
    const auto shape = entry->shape.span();
    return Found({entry->type->dtype, {shape.begin(), shape.end()}, entry->bytes, entry->provider});
  }

  std::shared_ptr<const void> owner() const { return bundle_ ? bundle_->owner() : nullptr; }

 private:
  Status open() {
    auto opened = open_bundle(folder_, options_);
    if (!opened) return std::move(opened).error();
    bundle_ = *std::move(opened);
    // TensorFlow 2 assigns the variables in a function, TensorFlow 1 in the graph.
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
        const auto argument = body.arguments.find(variable);
        if (argument == body.arguments.end() || argument->second >= call->inputs.size()) continue;
        variable = call->inputs[argument->second];
      }
      keys_.try_emplace(std::move(variable), *key);
    }
    return {};
  }

  /// A tensor of the checkpoint. For a partition, `slice` specifies its part of the tensor in RestoreV2's form: "4 3
  /// 0,2:0,3" is the shape, then start and length for each axis, or "-" for a whole axis.
  struct Key {
    std::string name, slice;
  };

  static std::optional<detail::Box> slice_of(std::string_view text) {
    detail::Box slice;
    std::vector<Extent> shape;
    const auto number = [&](char end) -> std::optional<Extent> {
      Extent value = 0;
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || (stop != text.data() + text.size() && *stop != end)) return std::nullopt;
      text.remove_prefix(std::min<std::size_t>(text.size(), static_cast<std::size_t>(stop - text.data()) + 1));
      return value;
    };
    for (auto rank = std::count(text.begin(), text.end(), ' '); rank > 0; --rank) {
      const auto extent = number(' ');
      if (!extent) return std::nullopt;
      shape.push_back(*extent);
    }
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (text.starts_with('-')) {
        text.remove_prefix(std::min<std::size_t>(text.size(), 2));
        slice.start.push_back(0);
        slice.length.push_back(shape[axis]);
        continue;
      }
      const auto start = number(',');
      const auto length = start ? number(':') : std::nullopt;
      if (!length) return std::nullopt;
      slice.start.push_back(*start);
      slice.length.push_back(*length);
    }
    return text.empty() ? std::optional(std::move(slice)) : std::nullopt;
  }

  /// Returns the checkpoint's tensor from which a tensor is read, or nullopt if it is not read from the checkpoint.
  Result<std::optional<Key>> key_of(const tf::Body& body, std::string tensor) {
    constexpr int max_nodes = 16;  // nodes between the two tensors; TensorFlow writes one
    for (int i = 0; i < max_nodes; ++i) {
      STELE_TRY_ASSIGN(const tf::Reference ref, tf::reference_of(tensor));
      const auto place = body.places.find(ref.node);
      if (place == body.places.end()) break;
      const tf::NodeDef& node = body.nodes[place->second];
      if (node.op == "RestoreV2" && node.inputs.size() >= 3) {
        STELE_TRY_ASSIGN(const auto* const slices, strings(body, node.inputs[2]));
        STELE_TRY_ASSIGN(const auto* const names, strings(body, node.inputs[1]));
        if (names == nullptr || slices == nullptr || ref.index >= names->size()) break;
        const auto k = static_cast<std::size_t>(ref.index);
        return std::optional(Key{(*names)[k], k < slices->size() ? (*slices)[k] : ""});
      }
      if (node.op != "Identity" || node.inputs.empty()) break;
      tensor = node.inputs[0];
    }
    return std::optional<Key>();
  }

  /// Returns the elements of a string constant, or nullptr if the tensor is not a constant.
  Result<const std::vector<std::string>*> strings(const tf::Body& body, const std::string& tensor) {
    STELE_TRY_ASSIGN(const tf::Reference ref, tf::reference_of(tensor));
    const auto place = body.places.find(ref.node);
    const auto* const value = place != body.places.end() ? body.nodes[place->second].find("value") : nullptr;
    const auto* const tensor_place = value != nullptr ? std::get_if<tf::ByteRange>(value) : nullptr;
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
  std::unordered_map<std::string, Key> keys_;  // for each variable's node
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

Result<Checkpoint> import_opened(SourcePtr source, const ImportOptions& options) {
  SourcePtr folder = source;
  if (source->is_folder()) {
    STELE_TRY_ASSIGN(source, folder->bundle()->open("saved_model.pb"));
  } else if (source->bundle() != nullptr) {
    folder = bundle_source(source->bundle(), source->name());
  }
  const std::uint64_t bytes = source->size();
  detail::IndexBudget memory(options.load.limits, bytes);
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
      for (const auto& [key, tensor] : signature->second.inputs) flatten.inputs.push_back(tensor);
      for (const auto& [key, tensor] : signature->second.outputs) flatten.outputs.push_back(tensor);
    }
  } else {
    flatten.inputs = tf::inputs_of(graph);
    if (flatten.outputs.empty()) flatten.outputs = tf::results_of(graph);
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

}  // namespace stele::inline v0
