#include "passes/composites/configuration.hpp"

#include <algorithm>
#include <charconv>

#include "json/json.hpp"
#include "passes/composites/composite.hpp"

namespace stele::inline v0::detail::composites {
namespace {

constexpr std::size_t max_settings = 64;  // settings of a layer; a lookup searches them
// different settings of layers; more of them count as none
constexpr std::size_t max_owners = 256;
constexpr std::size_t max_instructions = std::size_t{1} << 18;  // instructions of all expressions: bounds their memory
constexpr std::uint64_t max_steps = std::uint64_t{1} << 28;     // steps of all matches: bounds their time
constexpr int max_nested_configs = 3;                           // levels of models in models

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns the name of a layer without the names of the modules that wrap a language model. Programs agree on the
/// layers below these modules, but not on their presence and order.
std::string_view without_wrappers(std::string_view name) {
  constexpr std::string_view wrappers[] = {"model.", "language_model.", "text_model."};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view w : wrappers) {
      if (!name.starts_with(w)) continue;
      name.remove_prefix(w.size());
      found = true;
    }
  }
  return name;
}

/// Returns the name from the module that has a number: "layers.0.mlp"; empty without one.
std::string_view tail_of(std::string_view name) {
  for (std::size_t begin = 0, before = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (begin != 0 && is_number(name.substr(begin, end - begin))) return name.substr(before);
    before = begin;
    begin = end + 1;
  }
  return {};
}

/// Returns the entry if it can be the settings of a layer.
const Value* settings_in(const Value* value) {
  return value != nullptr && value->as_map() != nullptr && value->as_map()->size() <= max_settings ? value : nullptr;
}

void add_once(std::vector<const Value*>& owners, const Value* own) {
  if (owners.size() > max_owners) return;
  const auto same = [&](const Value* o) { return o == own || (o != nullptr && own != nullptr && *o == *own); };
  if (std::none_of(owners.begin(), owners.end(), same)) owners.push_back(own);
}

/// Returns two positive numbers of a list, or of a text such as "128x128".
std::optional<Block> pair_of(const Value& value) {
  std::vector<std::uint64_t> numbers;
  if (const std::string* const text = value.as_string()) {
    const char *at = text->data(), *const end = at + text->size();
    for (std::uint64_t number = 0; numbers.size() < 2; ++at) {
      const auto [next, error] = std::from_chars(at, end, number);
      if (error != std::errc()) return std::nullopt;
      numbers.push_back(number);
      at = next;
      if (numbers.size() == 1 && (at == end || *at != 'x')) return std::nullopt;
      if (numbers.size() == 2 && at != end) return std::nullopt;
    }
  } else if (value.as_list() != nullptr && value.as_list()->size() == 2) {
    if (auto list = value.to<std::vector<std::uint64_t>>()) numbers = *std::move(list);
  }
  if (numbers.size() != 2 || numbers[0] == 0 || numbers[1] == 0) return std::nullopt;
  return Block{numbers[0], numbers[1]};
}

}  // namespace

const Value* LayerSettings::find(std::string_view key) const {
  const Value* found = own_ != nullptr ? own_->find(key) : nullptr;
  if (found == nullptr || found->is_null()) {
    const auto at = all_->find(key);
    found = at != all_->end() ? at->second : nullptr;
  }
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::optional<Block> LayerSettings::block() const {
  if (const Value* const pair = find("block_structure")) return pair_of(*pair);
  const auto strategy = get<std::string>("strategy");
  if (strategy == "tensor") return Block{0, 0};
  if (strategy == "channel") return Block{1, 0};
  if (const Value* const pair = find("weight_block_size")) return pair_of(*pair);
  const bool groups = strategy == "group" || strategy == "tensor_group" || (!strategy && own_ != nullptr);
  const auto group = groups ? get<std::int64_t>("group_size") : std::nullopt;
  if (!group) return std::nullopt;
  return Block{1, *group > 0 ? static_cast<std::uint64_t>(*group) : 0};
}

Configuration::Configuration(const Value& config, const std::function<bool(std::string_view)>& is_layer) {
  const Value::Map* const members = config.as_map();
  for (std::size_t i = 0; members != nullptr && i < members->size(); ++i) {
    all_.emplace((*members)[i].first, &(*members)[i].second);
  }
  const auto map_of = [&](const char* key) -> const Value::Map* {
    const auto at = all_.find(key);
    return at != all_.end() ? at->second->as_map() : nullptr;
  };
  if (const Value::Map* const groups = map_of("config_groups")) {
    add_groups(*groups);
    all_.erase("config_groups");
  } else if (const Value::Map* const dynamic = map_of("dynamic")) {
    add_dynamic(*dynamic);
  } else if (const Value::Map* const layers = map_of("extra_config")) {
    add_layers(*layers, true, is_layer);
  } else if (members != nullptr) {
    add_layers(*members, false, is_layer);  // MLX
    whole_ = true;
  }
  add_aliases(is_layer);
}

/// Adds compressed-tensors' groups. A target is the name of a layer, an expression after "re:", or a class of layers.
/// Names go before expressions, which are sorted, and these before classes (compressed_tensors.utils.match).
void Configuration::add_groups(const Value::Map& groups) {
  std::map<std::string_view, const Value*> expressions;
  std::vector<const Value*> classes;
  for (const auto& [name, group] : groups) {
    const Value* const weights = settings_in(group.find("weights"));
    if (weights == nullptr) continue;
    add_once(every_, weights);
    const Value* const targets = group.find("targets");
    const Value::List* const list = targets != nullptr ? targets->as_list() : nullptr;
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const std::string* const target = (*list)[i].as_string();
      if (target == nullptr || target->empty()) continue;
      if (target->starts_with("re:")) {
        expressions[std::string_view(*target).substr(3)] = weights;
      } else if (target->front() >= 'A' && target->front() <= 'Z' && target->find('.') == target->npos) {
        add_once(classes, weights);
      } else {
        exact_[*target] = weights;
      }
    }
  }
  for (const auto& [expression, weights] : expressions) add_rule(expression, false, weights);
  others_ = classes.empty() ? every_ : std::move(classes);
}

/// Adds gptqmodel's rules: an expression after "+:", or after "-:" for layers without settings.
void Configuration::add_dynamic(const Value::Map& rules) {
  for (const auto& [key, value] : rules) {
    std::string_view expression = key;
    const bool none = expression.starts_with("-:");
    if (none || expression.starts_with("+:")) expression.remove_prefix(2);
    const Value* const own = none ? nullptr : settings_in(&value);
    add_once(every_, own);
    add_rule(expression, false, own);
  }
  add_once(every_, nullptr);
}

/// Adds entries for layers by their names. Keys of auto-round that are not names of layers are expressions.
void Configuration::add_layers(const Value::Map& layers, bool patterns,
                               const std::function<bool(std::string_view)>& is_layer) {
  for (const auto& [name, value] : layers) {
    const Value* const own = settings_in(&value);
    if (own == nullptr || own->as_map()->empty()) continue;
    exact_.emplace(name, own);
    add_once(every_, own);
    if (patterns && !is_layer(name)) add_rule(name, true, own);
  }
  add_once(every_, nullptr);
}

void Configuration::add_rule(std::string_view expression, bool anywhere, const Value* own) {
  Rule& rule = rules_.emplace_back(Rule{std::nullopt, anywhere, own});
  if (instructions_ > max_instructions) return;
  rule.expression = regex::Regex::compile(expression);
  instructions_ += rule.expression ? rule.expression->size() : 0;
}

void Configuration::add_aliases(const std::function<bool(std::string_view)>& is_layer) {
  for (const auto& [name, own] : exact_) {
    if (is_layer(name)) continue;
    aliases_.emplace(without_wrappers(name), own);
    if (const std::string_view tail = tail_of(name); !tail.empty()) tails_.emplace(tail, own);
  }
}

std::vector<LayerSettings> Configuration::settings(const std::vector<const Value*>& owners) const {
  std::vector<LayerSettings> all;
  all.reserve(owners.size());
  static const LayerSettings::Index none;
  for (const Value* const own : owners) all.emplace_back(own, whole_ && own != nullptr ? none : all_);
  if (all.empty()) all.push_back(of_all());
  return all;
}

std::vector<LayerSettings> Configuration::of(std::string_view layer) {
  const auto owners_in = [](const Owners& owners, std::string_view key) {
    std::vector<const Value*> found;
    for (auto [at, end] = owners.equal_range(key); at != end; ++at) add_once(found, at->second);
    return found;
  };
  if (const auto at = exact_.find(layer); at != exact_.end()) return settings({at->second});
  if (const auto found = owners_in(aliases_, without_wrappers(layer)); !found.empty()) return settings(found);
  for (const Rule& rule : rules_) {
    if (rule.expression) steps_ += rule.expression->size() * (layer.size() + 1);
    if (!rule.expression || steps_ > max_steps) return settings(every_);
    if (rule.anywhere ? rule.expression->matches_part(layer) : rule.expression->matches_beginning(layer))
      return settings({rule.own});
  }
  auto found = owners_in(tails_, tail_of(layer));
  for (const Value* const own : others_) add_once(found, own);
  if (others_.empty()) add_once(found, nullptr);
  return settings(found);
}

namespace {

/// Returns the kind of a model whose layers c_attn, c_proj, c_fc and q_attn are Conv1D of transformers; empty
/// otherwise.
std::string conv1d_type(const Value& config) {
  constexpr std::string_view types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "jais"};
  const auto type = config.at("model_type").to<std::string>();
  return type && std::find(std::begin(types), std::end(types), *type) != std::end(types) ? *type : std::string();
}

/// Adds the paths of descriptions of the quantization in the models that a model consists of.
void find_nested(const Value& config, std::vector<std::string>& path, int level,
                 std::vector<std::vector<std::string>>& found) {
  if (level > max_nested_configs || config.as_map() == nullptr) return;
  for (const auto& [key, value] : *config.as_map()) {
    if (value.as_map() == nullptr || key == config_key) continue;
    path.push_back(key);
    if (const Value* const inner = value.find(config_key); inner != nullptr && inner->as_map() != nullptr) {
      found.push_back(path);
      found.back().emplace_back(config_key);
    }
    find_nested(value, path, level + 1, found);
    path.pop_back();
  }
}

}  // namespace

Value parse_config(std::string_view text) {
  constexpr std::size_t max_bytes = std::size_t{4} << 20, max_memory = std::size_t{16} << 20;
  if (text.size() > max_bytes) return {};
  json::Reader in(text);
  Value value;
  const bool read = json::read_value(in, value, max_memory) && in.finish();
  return read ? std::move(value) : Value();
}

std::string model_with_conv1d(const Value& config) {
  std::string type = conv1d_type(config);
  const Value::Map* const members = config.as_map();
  for (std::size_t i = 0; members != nullptr && type.empty() && i < members->size(); ++i) {
    type = conv1d_type((*members)[i].second);  // a decoder, say
  }
  return type;
}

const Value& at_path(const Value& config, const std::vector<std::string>& path) {
  const Value* at = &config;
  for (const std::string& key : path) at = at->find(key);
  return *at;
}

std::vector<std::vector<std::string>> quantization_paths(const Value& config) {
  std::vector<std::vector<std::string>> found;
  for (const char* const key : {config_key, "quantization", "compression_config"}) {
    if (const Value* const value = config.find(key); value != nullptr && value->as_map() != nullptr)
      found.push_back({key});
  }
  std::vector<std::string> path;
  find_nested(config, path, 1, found);
  return found;
}

std::vector<std::string> quantization_path(const Value& config) {
  auto found = quantization_paths(config);
  if (found.empty()) return {};
  const auto other = [&](const auto& path) { return at_path(config, path) != at_path(config, found.front()); };
  const bool whole = found.front().size() == 1;
  return whole || std::none_of(found.begin(), found.end(), other) ? std::move(found.front())
                                                                  : std::vector<std::string>();
}

}  // namespace stele::inline v0::detail::composites
