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
    if (std::none_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return is_einsum(n) || is_fused(n); })) return;
    for (const Node& node : nodes_) {
      names_.insert(node.inputs.begin(), node.inputs.end());
      names_.insert(node.outputs.begin(), node.outputs.end());
    }
    for (Node& node : nodes_) {
      const bool done = (is_einsum(node) && split_einsum(node)) || (is_fused(node) && split_fused(node));
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

  /// Returns false if the budget does not allow so many nodes. The node then stays, and no rule covers it.
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
