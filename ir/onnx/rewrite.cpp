#include "ir/onnx/rewrite.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ir/engine/tensors.hpp"

namespace stele::inline v0::detail::ir {

namespace {

using model::Node;

constexpr std::string_view dots = "...";
/// Maximum number of nodes added for a small file, and bytes of a larger file for each further node. A node takes up to
/// 1 KiB of memory.
constexpr std::uint64_t max_nodes = 1 << 14, bytes_of_node = 16;

const model::Attribute* find(const Node& node, std::string_view name) {
  const auto found =
      std::find_if(node.attributes.begin(), node.attributes.end(), [&](const auto& a) { return a.name == name; });
  return found != node.attributes.end() ? &*found : nullptr;
}
template <class T>
const T* attribute_of(const Node& node, std::string_view name) {
  const model::Attribute* const attribute = find(node, name);
  return attribute != nullptr ? std::get_if<T>(&attribute->value) : nullptr;
}

/// An equation of Einsum. Each term has its labels in order, including "...".
struct Equation {
  std::vector<std::string> terms;
  std::string result;
  bool implicit = false;

  std::string text() const {
    std::string all;
    for (const std::string& term : terms) all += (&term == terms.data() ? "" : ",") + term;
    return all + "->" + result;
  }
};

/// Returns the first label that occurs twice in a term.
std::optional<char> repeated(std::string_view term) {
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term[i] != '.' && term.find(term[i], i + 1) != term.npos) return term[i];
  }
  return std::nullopt;
}

Equation parse(std::string text) {
  std::erase(text, ' ');
  Equation to;
  const std::size_t arrow = text.find("->");
  to.implicit = arrow == text.npos;
  const std::string left = text.substr(0, arrow);
  for (std::size_t begin = 0; begin <= left.size();) {
    const std::size_t end = std::min(left.find(',', begin), left.size());
    to.terms.push_back(left.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!to.implicit) {
    to.result = text.substr(arrow + 2);
    return to;
  }
  // The implicit result has the axes of "...", then the labels that occur once, in alphabetical order.
  std::map<char, std::size_t> counts;
  for (const std::string& term : to.terms) {
    for (const char c : term) ++counts[c];
  }
  if (counts.contains('.')) to.result = dots;
  for (const auto& [label, count] : counts) {
    if (count == 1 && label != '.') to.result += label;
  }
  return to;
}

/// Replaces nodes of a graph or function.
class Rewriter {
 public:
  Rewriter(std::vector<Node>& nodes, std::int64_t opset, std::uint64_t& budget)
      : nodes_(nodes), opset_(opset), budget_(budget) {}

  void run() {
    const auto changes = [](const Node& n) { return is_einsum(n) || is_fused(n) || is_quantized(n); };
    if (std::none_of(nodes_.begin(), nodes_.end(), changes)) return;
    for (const Node& node : nodes_) {
      names_.insert(node.inputs.begin(), node.inputs.end());
      names_.insert(node.outputs.begin(), node.outputs.end());
    }
    for (Node& node : nodes_) {
      const bool done = (is_einsum(node) && split_einsum(node)) || (is_fused(node) && split_fused(node)) ||
                        (is_quantized(node) && split_quantized(node));
      if (!done) out_.push_back(std::move(node));
    }
    nodes_ = std::move(out_);
  }

 private:
  static bool is_einsum(const Node& node) {
    return node.domain.empty() && node.op == "Einsum" && node.outputs.size() == 1;
  }
  static bool is_fused(const Node& node) {
    return node.domain == "com.microsoft" && node.op == "FusedConv" && node.outputs.size() == 1;
  }

  /// Operators of integers with scales, of ONNX and of onnxruntime's quantizer (QOperator format).
  static bool is_quantized(const Node& node) {
    static const std::unordered_set<std::string> own = {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"};
    static const std::unordered_set<std::string> more = {
        "QuantizeLinear",           "DequantizeLinear",   "QLinearAdd",     "QLinearMul",
        "QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid", "QLinearLeakyRelu",
        "QLinearSoftmax",           "QLinearConcat",      "QGemm",          "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul"};
    if (node.outputs.size() != 1) return false;
    return (node.domain.empty() && own.contains(node.op)) || (node.domain == "com.microsoft" && more.contains(node.op));
  }

  /// Returns false if the budget does not allow this number of nodes. The node then stays, and no rule covers it.
  bool spend(std::size_t nodes) {
    if (nodes > budget_) return false;
    budget_ -= nodes;
    return true;
  }

  std::string fresh(const Node& node) {
    for (std::string name = node.outputs[0] + '/' + std::to_string(next_);;
         name = node.outputs[0] + '/' + std::to_string(next_)) {
      ++next_;
      if (names_.insert(name).second) return name;
    }
  }

  /// Adds a node with the same name, for an operator without a domain.
  Node& add(const Node& from, std::string op, std::vector<std::string> inputs, std::string output) {
    Node& to = out_.emplace_back();
    to.name = from.name;
    to.op = std::move(op);
    to.inputs = std::move(inputs);
    to.outputs = {std::move(output)};
    return to;
  }
  std::string add_einsum(const Node& from, std::vector<std::string> inputs, const Equation& equation,
                         std::string output) {
    add(from, "Einsum", std::move(inputs), output).attributes.push_back({"equation", equation.text()});
    return output;
  }

  bool split_einsum(const Node& node) {
    const std::string* const text = attribute_of<std::string>(node, "equation");
    if (text == nullptr || node.attributes.size() != 1) return false;
    Equation all = parse(*text);
    const bool repeats = std::any_of(all.terms.begin(), all.terms.end(), [](const auto& t) { return repeated(t); });
    if (all.terms.size() != node.inputs.size() || repeated(all.result)) return false;
    if (!repeats && !all.implicit && all.terms.size() <= 2) return false;
    constexpr std::size_t max_labels = max_rank + dots.size();
    const auto longer = [](const std::string& term) { return term.size() > max_labels; };
    if (std::any_of(all.terms.begin(), all.terms.end(), longer)) return false;
    std::size_t labels = 0;
    for (const std::string& term : all.terms) labels += term.size();
    if (!spend(all.terms.size() + (repeats ? labels : 0))) return false;
    std::vector<std::string> operands = node.inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::string& term = all.terms[i];
      while (const auto label = repeated(term)) {
        Equation diagonal{{term}, std::string(1, *label)};  // its axis comes first: other labels may repeat
        std::remove_copy(term.begin(), term.end(), std::back_inserter(diagonal.result), *label);
        const bool last = operands.size() == 1 && std::is_permutation(diagonal.result.begin(), diagonal.result.end(),
                                                                      all.result.begin(), all.result.end());
        if (last) {
          diagonal.result = all.result;
          add_einsum(node, {operands[i]}, diagonal, node.outputs[0]);
          return true;
        }
        operands[i] = add_einsum(node, {operands[i]}, diagonal, fresh(node));
        term = diagonal.result;
      }
    }
    // For each label, the number of terms that need it. The result counts as a term.
    std::map<char, std::size_t> uses;
    const auto count = [&](const std::string& term, int by) {
      for (const char c : term) uses[c] += static_cast<std::size_t>(by);
    };
    for (const std::string& term : all.terms) count(term, 1);
    count(all.result, 1);
    std::size_t first = 0;
    for (; operands.size() - first > 2; ++first) {
      Equation pair{{all.terms[first], all.terms[first + 1]}, {}};
      count(pair.terms[0], -1);
      count(pair.terms[1], -1);
      const bool open = pair.terms[0].find('.') != std::string::npos || pair.terms[1].find('.') != std::string::npos;
      if (open) pair.result = dots;
      for (const char c : pair.terms[0] + pair.terms[1]) {
        if (c != '.' && uses[c] != 0 && pair.result.find(c) == std::string::npos) pair.result += c;
      }
      count(pair.result, 1);
      operands[first + 1] = add_einsum(node, {operands[first], operands[first + 1]}, pair, fresh(node));
      all.terms[first + 1] = pair.result;
    }
    const auto rest = static_cast<std::ptrdiff_t>(first);
    all.terms.erase(all.terms.begin(), all.terms.begin() + rest);
    operands.erase(operands.begin(), operands.begin() + rest);
    add_einsum(node, std::move(operands), all, node.outputs[0]);
    return true;
  }

  bool split_fused(Node& node) {
    const std::string* const activation = attribute_of<std::string>(node, "activation");
    const std::string kind = activation != nullptr ? *activation : std::string();
    const auto* const given = attribute_of<std::vector<float>>(node, "activation_params");
    const std::vector<float> numbers = given != nullptr ? *given : std::vector<float>();
    // The attribute names of each activation, in the order of its parameters.
    static const std::map<std::string, std::vector<std::string>> known{{"Relu", {}},
                                                                       {"Tanh", {}},
                                                                       {"Sigmoid", {}},
                                                                       {"LeakyRelu", {"alpha"}},
                                                                       {"HardSigmoid", {"alpha", "beta"}},
                                                                       {"Clip", {"min", "max"}}};
    const auto names = known.find(kind);
    if (names == known.end() || names->second.size() != numbers.size() || node.inputs.empty()) {
      node.refused = "its activation is unknown, or has another number of parameters";
      return false;
    }
    constexpr std::size_t max_new_nodes = 5;  // Conv, Add, two constants and the activation
    if (!spend(max_new_nodes)) return false;
    const std::size_t sum = 3;  // index of the input that is added before the activation
    const std::string added = node.inputs.size() > sum ? node.inputs[sum] : std::string();
    node.inputs.resize(std::min(node.inputs.size(), sum));
    std::string made = fresh(node);
    Node& conv = add(node, "Conv", node.inputs, made);
    for (const model::Attribute& a : node.attributes) {
      if (a.name != "activation" && a.name != "activation_params") conv.attributes.push_back(a);
    }
    if (!added.empty()) {
      std::string both = fresh(node);
      add(node, "Add", {made, added}, both);
      made = std::move(both);
    }
    constexpr std::int64_t clip_of_inputs = 11;  // the first version in which Clip takes its bounds as inputs
    std::vector<std::string> inputs{made};
    if (kind == "Clip" && opset_ >= clip_of_inputs) {
      for (const float number : numbers) {
        inputs.push_back(fresh(node));
        add(node, "Constant", {}, inputs.back()).attributes.push_back({"value_float", number});
      }
    }
    const bool with_attributes = inputs.size() == 1;
    Node& last = add(node, kind, std::move(inputs), node.outputs[0]);
    for (std::size_t i = 0; with_attributes && i < numbers.size(); ++i) {
      last.attributes.push_back({names->second[i], numbers[i]});
    }
    return true;
  }

  static std::string input(const Node& node, std::size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : std::string();
  }
  std::string make(const Node& from, std::string op, std::vector<std::string> inputs,
                   std::vector<model::Attribute> attributes = {}, std::string output = {}) {
    while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
    if (output.empty()) output = fresh(from);
    add(from, std::move(op), std::move(inputs), output).attributes = std::move(attributes);
    return output;
  }
  /// Adds the number that an input, and the scale and the zero point after it, are. Scales may apply to the indices of
  /// an axis.
  std::string floats(const Node& node, std::size_t i, std::int64_t axis) {
    return make(node, "DequantizeLinear", {input(node, i), input(node, i + 1), input(node, i + 2)}, {{"axis", axis}});
  }
  /// Adds the integers of a number, as the node's output.
  void quantize(const Node& node, const std::string& number, std::size_t scale) {
    make(node, "QuantizeLinear", {number, input(node, scale), input(node, scale + 1)}, {}, node.outputs[0]);
  }
  std::string cast(const Node& node, const std::string& tensor, std::int64_t to, std::string output = {}) {
    return make(node, "Cast", {tensor}, {{"to", to}}, std::move(output));
  }
  /// Adds integers less their zero point, as f32 or f64.
  std::string moved(const Node& node, const std::string& tensor, const std::string& zero, std::int64_t to) {
    const std::string number = cast(node, tensor, to);
    return zero.empty() ? number : make(node, "Sub", {number, cast(node, zero, to)});
  }
  std::vector<model::Attribute> without(const Node& node, std::string_view name) const {
    std::vector<model::Attribute> rest;
    for (const model::Attribute& a : node.attributes) {
      if (a.name != name) rest.push_back(a);
    }
    return rest;
  }

  bool split_quantized(Node& node) {
    constexpr std::int64_t f32 = 1, i32 = 6, f64 = 11;  // TensorProto.DataType
    constexpr std::size_t max_new_nodes = 16;
    const std::string& op = node.op;
    if (node.inputs.size() > (op == "QLinearConcat" ? max_rank : max_new_nodes) || !spend(2 * max_new_nodes))
      return false;
    const auto integer = [&](std::string_view name) {
      const auto* const value = attribute_of<std::int64_t>(node, name);
      return value != nullptr ? *value : 0;
    };
    if (op == "QuantizeLinear" || op == "DequantizeLinear") {
      make(node, op, node.inputs, node.attributes, node.outputs[0]);
    } else if (op == "QLinearConv") {
      const std::string x = floats(node, 0, 1), w = floats(node, 3, 0);
      std::string bias;
      if (!input(node, 8).empty()) {  // its scale is the product of the two other scales
        const std::string scale = make(node, "Mul", {input(node, 1), input(node, 4)});
        bias = make(node, "Mul", {cast(node, input(node, 8), f32), scale});
      }
      quantize(node, make(node, "Conv", {x, w, bias}, node.attributes), 6);
    } else if (op == "QLinearMatMul") {
      quantize(node, make(node, "MatMul", {floats(node, 0, -2), floats(node, 3, -1)}), 6);
    } else if (op == "QLinearAdd" || op == "QLinearMul") {
      quantize(node, make(node, op.substr(7), {floats(node, 0, 1), floats(node, 3, 1)}), 6);
    } else if (op == "QLinearSigmoid" || op == "QLinearLeakyRelu") {
      quantize(node, make(node, op.substr(7), {floats(node, 0, 1)}, node.attributes), 3);
    } else if (op == "QLinearGlobalAveragePool" || op == "QLinearAveragePool") {
      if (integer("channels_last") != 0) return refuse(node, "its channels are last");
      quantize(node, make(node, op.substr(7), {floats(node, 0, 1)}, without(node, "channels_last")), 3);
    } else if (op == "QLinearSoftmax") {  // before version 13, Softmax applies to all axes from `axis` on together
      if (integer("opset") < 13) return refuse(node, "its version of Softmax is before 13");
      quantize(node, make(node, "Softmax", {floats(node, 0, 1)}, without(node, "opset")), 3);
    } else if (op == "QLinearConcat") {
      std::vector<std::string> parts;
      for (std::size_t i = 2; i + 1 < node.inputs.size(); i += 3) parts.push_back(floats(node, i, 1));
      quantize(node, make(node, "Concat", std::move(parts), node.attributes), 0);
    } else if (op == "QGemm") {
      const auto* const alpha = attribute_of<float>(node, "alpha");
      if (alpha != nullptr && *alpha != 1) return refuse(node, "its alpha is not 1");
      std::string bias;
      if (!input(node, 6).empty()) {
        const std::string scale = make(node, "Mul", {input(node, 1), input(node, 4)});
        bias = make(node, "Mul", {cast(node, input(node, 6), f32), scale});
      }
      const std::string a = floats(node, 0, 1), b = floats(node, 3, integer("transB") != 0 ? 0 : 1);
      const bool ends = input(node, 7).empty();
      const std::string sum =
          make(node, "Gemm", {a, b, bias}, without(node, "alpha"), ends ? node.outputs[0] : std::string());
      if (!ends) quantize(node, sum, 7);
    } else if (op == "ConvInteger") {
      const std::string x = moved(node, input(node, 0), input(node, 2), f32);
      const std::string w = moved(node, input(node, 1), input(node, 3), f32);
      cast(node, make(node, "Conv", {x, w}, node.attributes), i32, node.outputs[0]);
    } else if (op == "MatMulInteger") {  // sums may exceed the integers of f32
      const std::string a = moved(node, input(node, 0), column(node, input(node, 2)), f64);
      const std::string b = moved(node, input(node, 1), input(node, 3), f64);
      cast(node, make(node, "MatMul", {a, b}), i32, node.outputs[0]);
    } else {
      return split_to_float(node);
    }
    return true;
  }

  /// A zero point for each row of a matrix, or one for all.
  std::string column(const Node& node, const std::string& zero) {
    if (zero.empty()) return zero;
    const std::string shape = fresh(node);
    add(node, "Constant", {}, shape).attributes.push_back({"value_ints", std::vector<std::int64_t>{-1, 1}});
    return make(node, "Reshape", {zero, shape});
  }

  /// Products of integers with a result of f32.
  bool split_to_float(const Node& node) {
    std::string a, b, bias;
    if (node.op == "DynamicQuantizeMatMul") {  // A, B, b_scale, b_zero_point, bias
      Node& dynamic = add(node, "DynamicQuantizeLinear", {input(node, 0)}, fresh(node));
      const std::string codes = dynamic.outputs[0];
      const std::string scale = fresh(node), zero = fresh(node);
      out_.back().outputs = {codes, scale, zero};
      a = make(node, "DequantizeLinear", {codes, scale, zero});
      b = make(node, "DequantizeLinear", {input(node, 1), input(node, 2), input(node, 3)},
               {{"axis", std::int64_t{-1}}});
      bias = input(node, 4);
    } else {  // A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias
      a = make(node, "DequantizeLinear", {input(node, 0), input(node, 2), input(node, 4)},
               {{"axis", std::int64_t{-2}}});
      b = make(node, "DequantizeLinear", {input(node, 1), input(node, 3), input(node, 5)},
               {{"axis", std::int64_t{-1}}});
      bias = input(node, 6);
    }
    const std::string product = make(node, "MatMul", {a, b}, {}, bias.empty() ? node.outputs[0] : std::string());
    if (!bias.empty()) make(node, "Add", {product, bias}, {}, node.outputs[0]);
    return true;
  }

  static bool refuse(Node& node, const char* why) {
    node.refused = why;
    return false;
  }

  std::vector<Node>& nodes_;
  std::int64_t opset_;
  std::uint64_t& budget_;
  std::vector<Node> out_;
  std::unordered_set<std::string> names_;
  std::size_t next_ = 0;
};

std::int64_t version_of(const std::map<std::string, std::int64_t>& opsets) {
  const auto own = opsets.find("");
  return own != opsets.end() ? own->second : 0;
}

}  // namespace

void rewrite(model::Graph& graph, std::uint64_t file_bytes) {
  std::uint64_t budget = max_nodes + file_bytes / bytes_of_node;
  Rewriter(graph.nodes, version_of(graph.opsets), budget).run();
  for (model::Function& function : graph.functions) {
    Rewriter(function.nodes, version_of(function.opsets), budget).run();
  }
}

}  // namespace stele::inline v0::detail::ir
