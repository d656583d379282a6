// Names the tensors of a checkpoint, and finds the variables of slots.
#include "names.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "encodings/tensor_bundle/objects.hpp"

namespace stele::inline v0::detail::tensorflow {
namespace {

constexpr std::string_view attributes_part = "/.ATTRIBUTES/", value_attribute = "VARIABLE_VALUE",
                           slot_part = "/.OPTIMIZER_SLOT/";

/// Children of an optimizer of Keras 3: its own variables, and the variables that it trains.
constexpr std::string_view own_list = "_variables", trained_list = "_trainable_variables";

/// Names of TensorFlow 1's optimizer slots: a slot is VARIABLE/NAME, or VARIABLE/NAME_1 for an optimizer's second slot.
constexpr std::array<std::string_view, 9> slot_names = {"Adam", "Momentum", "Adagrad",         "AdagradDA", "Adadelta",
                                                        "Ftrl", "RMSProp",  "ProximalAdagrad", "AdaMax"};

/// Unescapes an attribute's name in a TensorFlow key: `.S` is a slash, and `..` a dot.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '.' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == 'S' || next == '.') {
      out += next == 'S' ? '/' : '.';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Appends a segment, after a dot if it is not the first.
void append(std::string& path, std::string_view segment) {
  if (!path.empty()) path += '.';
  append_segment(path, segment);
}

/// Returns the path of a name whose parts are separated by slashes.
std::string path_of(std::string_view name, bool escaped) {
  std::string path;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    append(path, escaped ? unescaped(part) : std::string(part));
    begin = end + 1;
  }
  return path;
}

/// Returns a key without the attribute of variables, `/.ATTRIBUTES/VARIABLE_VALUE`.
std::string_view without_attribute(std::string_view key) {
  const std::size_t at = key.rfind(attributes_part);
  const bool value = at != key.npos && key.substr(at + attributes_part.size()) == value_attribute;
  return value ? key.substr(0, at) : key;
}

class Namer {
 public:
  Namer(const Bundle& bundle, TensorBundleNames names, IndexBudget& memory)
      : bundle_(bundle), names_(names), memory_(memory) {}

  Result<Named> run() {
    const auto& entries = bundle_.entries();
    if (names_ == TensorBundleNames::keys) {
      for (const Entry& entry : entries) STELE_TRY(add(entry, std::string(entry.key)));
      return std::move(out_);
    }
    const Entry* const graph = bundle_.find(graph_key);
    if (graph != nullptr && graph->has_strings()) {
      STELE_TRY(read_graph(graph->strings));
      find_slot_keys();
    } else {
      find_slot_names();
    }
    for (const Entry& entry : entries) {
      if (!slots_.contains(&entry) && entry.key != graph_key) STELE_TRY(add(entry, path_of(entry)));
    }
    for (const auto& [slot, place] : slots_) {
      const auto parameter = numbers_.find(place.variable);
      if (parameter == numbers_.end()) {
        STELE_TRY(add(*slot, path_of(*slot)));  // a slot of another slot
      } else {
        STELE_TRY(spend(place.optimizer.size() + place.kind.size() + 3 * sizeof(Named::Slot)));
        out_.slots.push_back({slot, parameter->second, kind_of(place)});
      }
    }
    std::sort(out_.slots.begin(), out_.slots.end(),
              [](const Named::Slot& a, const Named::Slot& b) { return a.entry->key < b.entry->key; });
    STELE_TRY(add_ties());
    return std::move(out_);
  }

 private:
  struct Owner {
    const Entry* variable;
    std::string optimizer, kind;
  };

  Status spend(std::uint64_t bytes) {
    return memory_.take(bytes) ? Status() : index_error("the names of the checkpoint need too much memory");
  }

  Status add(const Entry& entry, std::string path) {
    if (entry.is_slice()) return {};
    STELE_TRY(spend(3 * (sizeof(Named::Parameter) + path.size())));
    numbers_.emplace(&entry, out_.parameters.size());
    out_.parameters.push_back({&entry, std::move(path)});
    return {};
  }

  void add_slot(const Entry* slot, const Entry* variable, std::string optimizer, std::string_view kind) {
    if (slot == nullptr || variable == nullptr || slot == variable || slot->is_slice() || variable->is_slice()) return;
    optimizers_.insert(optimizer);
    slots_.emplace(slot, Owner{variable, std::move(optimizer), std::string(kind)});
  }

  std::string kind_of(const Owner& place) const {
    if (optimizers_.size() <= 1 || place.optimizer.empty()) return place.kind;
    return place.optimizer + '.' + place.kind;
  }

  // ---- TensorFlow 1

  /// Finds slots by name: the name of a variable, followed by the name of an optimizer.
  void find_slot_names() {
    for (const Entry& entry : bundle_.entries()) {
      const std::size_t slash = entry.key.rfind('/');
      if (slash == entry.key.npos) continue;
      const std::string_view kind = entry.key.substr(slash + 1);
      const std::string_view base = kind.substr(0, kind.find_last_not_of("0123456789") + 1);
      const bool known = std::any_of(slot_names.begin(), slot_names.end(), [&](std::string_view name) {
        return kind == name || (base.size() == name.size() + 1 && base.size() < kind.size() && base.starts_with(name) &&
                                base.ends_with('_'));
      });
      const Entry* const variable = known ? bundle_.find(entry.key.substr(0, slash)) : nullptr;
      if (variable != nullptr && variable->shape == entry.shape) add_slot(&entry, variable, "", kind);
    }
  }

  // ---- TensorFlow 2

  Status read_graph(const Value& text) {
    std::span<const std::byte> bytes;
    if (const std::string* s = text.as_string()) bytes = std::as_bytes(std::span(*s));
    if (const Value::Bytes* b = text.as_bytes()) bytes = *b;
    auto graph = ObjectGraph::parse(bytes, memory_);
    if (!graph) return std::move(graph).error().path(graph_key).file(bundle_.name());
    graph_ = *std::move(graph);
    if (graph_.size() == 0) return {};
    find_objects();
    values_.resize(graph_.size());
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      for (const ObjectGraph::Attribute& a : graph_.attributes(node)) {
        const Entry* const entry = bundle_.find(a.key);
        if (entry == nullptr) continue;
        attributes_.emplace(entry, std::pair(node, &a));
        if (values_[node] == nullptr && a.name == value_attribute) values_[node] = entry;
      }
    }
    for (const std::uint32_t optimizer : optimizer_nodes_) STELE_TRY(find_slots(optimizer));
    return {};
  }

  bool is_optimizer(std::uint32_t node) const {
    return !graph_.slots(node).empty() ||
           (graph_.find(node, own_list) != nullptr && graph_.find(node, trained_list) != nullptr);
  }

  /// Finds the shortest path from the root to each object. Avoids paths through an optimizer, whose lists have all
  /// variables, if the object has another path.
  void find_objects() {
    above_.assign(graph_.size(), {no_index, {}});
    above_[0].node = 0;
    std::vector<std::uint32_t> queue{0};
    for (const bool through_optimizers : {false, true}) {
      const std::size_t known = queue.size();
      for (std::size_t i = 0; i < queue.size(); ++i) {
        const std::uint32_t node = queue[i];
        if (is_optimizer(node) && (!through_optimizers || i >= known)) optimizer_nodes_.push_back(node);
        if (is_optimizer(node) && !through_optimizers) continue;
        for (const ObjectGraph::Child& child : graph_.children(node)) {
          if (above_[child.node].node != no_index) continue;
          above_[child.node] = {node, child.name};
          queue.push_back(child.node);
        }
      }
      queue = optimizer_nodes_;
    }
  }

  /// Returns an upper bound of the length of an object's path, to charge its memory before the path is built: paths may
  /// be long and share parts.
  std::uint64_t length_of(std::uint32_t node) const {
    std::uint64_t length = 0;
    for (; node != 0 && above_[node].node != no_index; node = above_[node].node) {
      length += 2 * above_[node].name.size() + 1;
    }
    return length;
  }

  std::string path_of_object(std::uint32_t node) const {
    std::vector<std::string_view> parts;
    for (; node != 0; node = above_[node].node) parts.push_back(above_[node].name);
    std::string path;
    for (std::size_t i = parts.size(); i-- > 0;) append(path, parts[i]);
    return path;
  }

  bool reached(std::uint32_t node) const { return above_[node].node != no_index; }

  Status find_slots(std::uint32_t optimizer) {
    STELE_TRY(spend(length_of(optimizer)));
    const std::string path = path_of_object(optimizer);
    for (const ObjectGraph::Slot& slot : graph_.slots(optimizer)) {
      STELE_TRY(spend(sizeof(Owner) + 96 + path.size() + slot.name.size()));
      add_slot(values_[slot.slot], values_[slot.variable], path, slot.name);
    }
    const auto* const trained = graph_.find(optimizer, trained_list);
    const auto* const own = graph_.find(optimizer, own_list);
    if (trained == nullptr || own == nullptr) return {};
    // Keras 3: the k-th element of a list of slots belongs to the k-th trained variable. Optimizers may share lists.
    constexpr std::uint64_t each_child = 64;
    STELE_TRY(spend(each_child * (graph_.children(trained->node).size() + graph_.children(own->node).size())));
    std::map<std::string_view, std::uint32_t> variables;
    for (const ObjectGraph::Child& child : graph_.children(trained->node)) variables.emplace(child.name, child.node);
    std::set<std::uint32_t> owned;
    for (const ObjectGraph::Child& child : graph_.children(own->node)) owned.insert(child.node);
    for (const ObjectGraph::Child& list : graph_.children(optimizer)) {
      if (list.node == trained->node || list.node == own->node) continue;
      STELE_TRY(spend(each_child * graph_.children(list.node).size()));
      for (const ObjectGraph::Child& child : graph_.children(list.node)) {
        const auto variable = variables.find(child.name);
        if (variable == variables.end() || !owned.contains(child.node)) continue;
        const Entry *const of = values_[variable->second], *const slot = values_[child.node];
        if (of == nullptr || slot == nullptr || of->shape != slot->shape) continue;
        STELE_TRY(spend(sizeof(Owner) + 96 + path.size() + list.name.size()));
        std::string_view kind = list.name;
        kind.remove_prefix(std::min(kind.find_first_not_of('_'), kind.size()));
        add_slot(slot, of, path, kind);
      }
    }
    return {};
  }

  /// Finds slots that the graph does not list, by their keys: VARIABLE/.OPTIMIZER_SLOT/OPTIMIZER/SLOT/.ATTRIBUTES/….
  void find_slot_keys() {
    for (const Entry& entry : bundle_.entries()) {
      const std::size_t at = entry.key.find(slot_part);
      if (at == entry.key.npos) continue;
      std::string_view rest = without_attribute(entry.key.substr(at + slot_part.size()));
      const std::size_t slash = rest.rfind('/');
      if (slash == rest.npos) continue;
      const std::string variable = std::string(entry.key.substr(0, at)).append(attributes_part).append(value_attribute);
      add_slot(&entry, bundle_.find(variable), tensorflow::path_of(rest.substr(0, slash), true),
               rest.substr(slash + 1));
    }
  }

  /// Returns the path of a tensor that is not a slot.
  std::string path_of(const Entry& entry) {
    const auto known = attributes_.find(&entry);
    const bool has_graph = graph_.size() != 0;
    if (known == attributes_.end()) return tensorflow::path_of(without_attribute(entry.key), has_graph);
    const auto& [node, attribute] = known->second;
    if (names_ == TensorBundleNames::variables && !attribute->full_name.empty()) {
      return tensorflow::path_of(attribute->full_name, false);
    }
    if (!reached(node)) return tensorflow::path_of(without_attribute(entry.key), true);
    std::string path = path_of_object(node);
    if (attribute->name != value_attribute || path.empty()) append(path, attribute->name);
    return path;
  }

  /// Adds the names that variables have as attributes of other objects.
  Status add_ties() {
    if (names_ != TensorBundleNames::objects) return {};
    std::set<std::uint32_t> lists;
    for (const std::uint32_t optimizer : optimizer_nodes_) {
      lists.insert(optimizer);
      for (const ObjectGraph::Child& child : graph_.children(optimizer)) lists.insert(child.node);
    }
    for (std::uint32_t node = 0; node < graph_.size(); ++node) {
      if (!reached(node) || lists.contains(node)) continue;
      for (const ObjectGraph::Child& child : graph_.children(node)) {
        const bool tree = above_[child.node].node == node && above_[child.node].name == child.name;
        const Entry* const entry = tree ? nullptr : values_[child.node];
        const auto parameter = entry != nullptr ? numbers_.find(entry) : numbers_.end();
        if (parameter == numbers_.end()) continue;
        STELE_TRY(spend(3 * (length_of(node) + 2 * child.name.size() + sizeof(Named::Tie))));
        std::string path = path_of_object(node);
        append(path, child.name);
        out_.ties.push_back({std::move(path), parameter->second});
      }
    }
    return {};
  }

  /// The parent of an object, and the child's name in it. The root is its own parent.
  struct Above {
    std::uint32_t node;
    std::string_view name;
  };

  const Bundle& bundle_;
  TensorBundleNames names_;
  IndexBudget& memory_;
  Named out_;
  ObjectGraph graph_;
  std::vector<Above> above_;
  std::vector<std::uint32_t> optimizer_nodes_;
  std::vector<const Entry*> values_;  // by node: the value of a variable, or nullptr
  std::unordered_map<const Entry*, std::pair<std::uint32_t, const ObjectGraph::Attribute*>> attributes_;
  std::unordered_map<const Entry*, std::size_t> numbers_;  // indexes of the parameters
  std::map<const Entry*, Owner> slots_;
  std::set<std::string> optimizers_;
};

}  // namespace

Result<Named> name_entries(const Bundle& bundle, TensorBundleNames names, IndexBudget& memory) {
  return Namer(bundle, names, memory).run();
}

}  // namespace stele::inline v0::detail::tensorflow
