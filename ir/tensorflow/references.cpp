#include "ir/tensorflow/references.hpp"

#include <cctype>
#include <charconv>
#include <unordered_set>

#include "dl4j/arrays.hpp"
#include "encodings/onnx/fields.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

namespace {

/// Operators whose outputs are never the result of a model.
constexpr std::array<std::string_view, 8> no_results = {"NoOp",  "Assert",        "Const",   "Placeholder",
                                                        "Print", "PlaceholderV2", "PrintV2", "ControlTrigger"};

}  // namespace

bool assigns(std::string_view op) noexcept {
  const bool resource = op.starts_with("Resource") && !op.starts_with("ResourceGather");
  const bool scatter = op.starts_with("Scatter") && op != "ScatterNd" && op != "ScatterNdNonAliasingAdd";
  return resource || scatter || op.starts_with("Assign") || op.starts_with("Save");
}

bool Assignments::precede(const Body& body, const NodeDef& node, int depth) {
  constexpr int max_depth = 64;  // longest chain of control inputs; a longer chain counts as an assignment
  for (const std::string& input : node.inputs) {
    const auto ref = reference_of(input);
    const auto place = ref && ref->control ? body.places.find(ref->node) : body.places.end();
    if (place == body.places.end()) continue;
    const NodeDef& before = body.nodes[place->second];
    if (assigns(before.op) || depth == max_depth) return true;
    const bool fresh = known_.try_emplace(&before, false).second;
    if (fresh && precede(body, before, depth + 1)) known_[&before] = true;
    if (known_[&before]) return true;
  }
  return false;
}

Result<Reference> reference_of(std::string_view text) {
  Reference ref;
  ref.control = text.starts_with('^');
  if (ref.control) text.remove_prefix(1);
  const std::size_t first = text.find(':');
  ref.node = text.substr(0, first);
  if (first == text.npos) return ref;
  const std::size_t last = text.rfind(':');
  if (last != first) ref.port = text.substr(first + 1, last - first - 1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + last + 1, end, ref.index);
  if (error == std::errc() && stop == end && last + 1 < text.size()) return ref;
  if (last != first) return Error(Errc::malformed, "an input is not named as node:output:number").found(text);
  ref.port = text.substr(first + 1);  // the form node:output in older files
  const bool named = !ref.port.empty() && std::isalpha(static_cast<unsigned char>(ref.port.front())) != 0;
  if (!named) return Error(Errc::malformed, "an input is not named as node:number").found(text);
  return ref;
}

std::vector<std::string> inputs_of(const GraphDef& graph) {
  std::vector<std::string> names;
  for (const NodeDef& node : graph.main.nodes) {
    if (node.op != "Placeholder" && node.op != "PlaceholderV2") continue;
    const AttributeValue* const dtype = node.find("dtype");
    const auto* const code = dtype != nullptr ? std::get_if<TypeCode>(dtype) : nullptr;
    if (code == nullptr) continue;
    const DType known = onnx::dtype_of(static_cast<std::uint64_t>(onnx_code(*code)));
    if (known != DType::none && samediff::holds(known)) names.push_back(node.name);
  }
  return names;
}

std::vector<std::string> results_of(const GraphDef& graph) {
  std::unordered_set<std::string_view> read;
  for (const NodeDef& node : graph.main.nodes) {
    for (const std::string& input : node.inputs) {
      if (const auto ref = reference_of(input)) read.insert(ref->node);
    }
  }
  std::vector<std::string> names;
  for (const NodeDef& node : graph.main.nodes) {
    const bool result = !is_one_of(no_results, node.op) && !is_one_of(variables, node.op) && !assigns(node.op);
    if (result && !read.contains(node.name)) names.push_back(node.name);
  }
  return names;
}

}  // namespace stele::inline v0::detail::ir::tensorflow
