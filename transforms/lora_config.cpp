// Reads adapter_config.json of PEFT. The keys of LoraConfig in PEFT 0.21.2 and older releases.
#include "lora_config.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>

namespace stele::inline v0::detail::lora {
namespace {

constexpr std::string_view merge_with_peft = "merge it with PEFT: PeftModel.merge_and_unload()";
constexpr std::string_view not_mergeable = "PEFT cannot merge such an adapter either";

constexpr Key keys[] = {
    {"alora_invocation_tokens", Use::refused, not_mergeable},
    {"alpha_pattern", Use::read},
    {"arrow_config", Use::refused, not_mergeable},
    {"auto_mapping", Use::read},
    {"base_model_name_or_path", Use::harmless},
    {"bias", Use::harmless},  // trained biases are tensors of the adapter
    {"corda_config", Use::harmless},
    {"enable_lora", Use::refused, merge_with_peft},  // key of PEFT before 0.3: parts of a fused weight
    {"ensure_weight_tying", Use::read},
    {"eva_config", Use::harmless},
    {"exclude_modules", Use::harmless},  // the adapter's tensors determine the modules
    {"fan_in_fan_out", Use::read},
    {"inference_mode", Use::harmless},
    {"init_lora_weights", Use::read},
    {"kasa_config", Use::refused, merge_with_peft},
    {"layer_replication", Use::refused, merge_with_peft},
    {"layers_pattern", Use::harmless},
    {"layers_to_transform", Use::harmless},
    {"loftq_config", Use::harmless},  // used only with init_lora_weights "loftq"
    {"lora_alpha", Use::read},
    {"lora_bias", Use::harmless},  // the bias is a tensor of the adapter
    {"lora_dropout", Use::harmless},
    {"lora_ga_config", Use::harmless},
    {"megatron_config", Use::refused, "merge it with Megatron"},
    {"megatron_core", Use::harmless},
    {"merge_weights", Use::harmless},
    {"modules_to_save", Use::read},
    {"monteclora_config", Use::harmless},  // PEFT merges the matrices without the samples
    {"peft_type", Use::read},
    {"peft_version", Use::harmless},
    {"qalora_group_size", Use::harmless},
    {"r", Use::harmless},  // the matrices determine the ranks
    {"rank_pattern", Use::harmless},
    {"revision", Use::harmless},
    {"runtime_config", Use::harmless},
    {"target_modules", Use::harmless},
    {"target_parameters", Use::refused, merge_with_peft},
    {"task_type", Use::harmless},
    {"trainable_token_indices", Use::read},
    {"use_bdlora", Use::refused, merge_with_peft},
    {"use_dora", Use::refused, merge_with_peft},
    {"use_qalora", Use::refused, not_mergeable},
    {"use_rslora", Use::read},
    {"velora_config", Use::harmless},  // changes only the gradient
};
static_assert(std::is_sorted(std::begin(keys), std::end(keys),
                             [](const Key& a, const Key& b) { return a.name < b.name; }));

/// Returns true for the value of a setting that is off.
bool is_off(const Value& value) {
  if (const bool* const flag = value.as_bool()) return !*flag;
  if (const auto* const list = value.as_list()) return list->empty();
  if (const auto* const map = value.as_map()) return map->empty();
  return value.is_null();
}

std::string text_of(const Value& value) {
  constexpr std::size_t max_bytes = 100;
  std::string text = to_json(value).value_or("?");
  if (text.size() > max_bytes) text.resize(max_bytes);
  return text;
}

Error malformed(std::string_view key, std::string_view expected, const Value& found) {
  return Error(Errc::malformed, "the adapter's configuration has an unexpected value")
      .path(key)
      .expected(expected)
      .found(text_of(found));
}

Status check_keys(const Value::Map& config) {
  for (const auto& [name, value] : config) {
    const auto* const key = std::lower_bound(std::begin(keys), std::end(keys), name,
                                             [](const Key& k, const std::string& n) { return k.name < n; });
    if (key == std::end(keys) || key->name != name) {
      if (is_off(value) && value.as_bool() == nullptr) continue;  // not set
      return Error(Errc::unsupported, "the adapter's configuration has an unknown key")
          .path(name)
          .found(text_of(value))
          .hint("remove the key from adapter_config.json if it does not change the merged weights");
    }
    if (key->use == Use::refused && !is_off(value)) {
      return Error(Errc::unsupported, "the adapter's configuration has a setting that is not merged")
          .path(name)
          .found(text_of(value))
          .hint(std::string(key->hint));
    }
  }
  return {};
}

/// Checks how the adapter was initialized: some ways change the model's weights when PEFT loads the adapter.
Status check_initialization(const Value& init, std::vector<std::string>& notes) {
  if (init.is_null() || init.as_bool() != nullptr) return {};
  const std::string* const name = init.as_string();
  if (name == nullptr) return malformed("init_lora_weights", "a bool or a string", init);
  std::string lower = *name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const std::string_view plain : {"gaussian", "eva", "orthogonal", "mica"}) {
    if (lower == plain) return {};
  }
  if (lower == "lora_ga") {
    notes.emplace_back(
        "init_lora_weights is lora_ga: the model must be the one that PEFT changed before the training, not the "
        "original");
    return {};
  }
  const bool changes = lower.starts_with("pissa") || lower.starts_with("corda") || lower == "olora" || lower == "loftq";
  if (!changes) return malformed("init_lora_weights", "an initialization that PEFT 0.21 has", init);
  return Error(Errc::unsupported, "the adapter belongs to weights that PEFT computes from the model's when it loads it")
      .path("init_lora_weights")
      .found(*name)
      .hint("save the adapter with path_initial_model_for_weight_conversion of PEFT's save_pretrained(), or " +
            std::string(merge_with_peft));
}

/// Reads a bool that may be missing or null.
Result<bool> flag(const Value& config, const char* key) {
  const Value* const value = config.find(key);
  if (value == nullptr || value->is_null()) return false;
  if (value->as_bool() == nullptr) return malformed(key, "a bool", *value);
  return *value->as_bool();
}

}  // namespace

std::span<const Key> known_keys() { return keys; }

LoraConfig::LoraConfig() = default;
LoraConfig::LoraConfig(LoraConfig&&) noexcept = default;
LoraConfig& LoraConfig::operator=(LoraConfig&&) noexcept = default;
LoraConfig::~LoraConfig() = default;

Result<LoraConfig> LoraConfig::of(const Value& config) {
  LoraConfig made;
  STELE_TRY(made.read(config));
  return made;
}

Status LoraConfig::read(const Value& config) {
  static const Value none;
  const auto value = [&](const char* key) -> const Value& {
    const Value* const found = config.find(key);
    return found != nullptr ? *found : none;
  };
  if (config.as_map() == nullptr) return malformed("", "an object", config);
  if (const Value& type = value("peft_type"); !type.is_null() && type != Value("LORA")) {
    return Error(Errc::unsupported, "the adapter is not of the type LORA").path("peft_type").found(text_of(type));
  }
  STELE_TRY(check_keys(*config.as_map()));
  STELE_TRY(check_initialization(value("init_lora_weights"), notes_));
  const auto alpha = config.at("lora_alpha").to<double>();
  if (!alpha) return Error(Errc::malformed, "the adapter's configuration has no number lora_alpha");
  alpha_ = *alpha;
  STELE_TRY(read_alphas(value("alpha_pattern")));
  STELE_TRY_ASSIGN(root_, flag(config, "use_rslora"));
  STELE_TRY_ASSIGN(fan_in_fan_out_, flag(config, "fan_in_fan_out"));
  STELE_TRY_ASSIGN(keeps_ties_, flag(config, "ensure_weight_tying"));
  if (const Value& saved = value("modules_to_save"); !saved.is_null()) {
    const auto names = saved.to<std::vector<std::string>>();
    if (!names) return malformed("modules_to_save", "a list of names", saved);
    saved_ = *names;
  }
  tokens_ = value("trainable_token_indices");
  library_ = config.at("auto_mapping").at("parent_library").to<std::string>().value_or("");
  return {};
}

/// PEFT looks for the first pattern that matches a module's name or an end of it after a dot.
Status LoraConfig::read_alphas(const Value& patterns) {
  if (patterns.is_null()) return {};
  if (patterns.as_map() == nullptr) return malformed("alpha_pattern", "an object", patterns);
  for (const auto& [pattern, value] : *patterns.as_map()) {
    const auto alpha = value.to<double>();
    if (!alpha) return malformed("alpha_pattern", "numbers", value);
    RE2::Options options;
    options.set_log_errors(false);
    auto compiled = std::make_unique<RE2>("(?:.*\\.)?(?:" + pattern + ")", options);
    if (!compiled->ok()) {
      return Error(Errc::unsupported, "RE2 cannot read a pattern of alpha_pattern")
          .path("alpha_pattern")
          .expected(compiled->error())
          .found(pattern);
    }
    alphas_.emplace_back(std::move(compiled), *alpha);
  }
  return {};
}

double LoraConfig::scale(const std::string& module, std::uint64_t rank) const {
  const auto own = std::find_if(alphas_.begin(), alphas_.end(),
                                [&](const auto& pattern) { return RE2::FullMatch(module, *pattern.first); });
  const double alpha = own != alphas_.end() ? own->second : alpha_;
  const auto r = static_cast<double>(rank);
  return alpha / (root_ ? std::sqrt(r) : r);
}

bool names_module(std::string_view entry, std::string_view tensor) {
  for (std::size_t dot = tensor.find('.'); dot != tensor.npos; dot = tensor.find('.', dot + 1)) {
    if (tensor.substr(0, dot).ends_with(entry)) return true;
  }
  return false;
}

bool LoraConfig::saves(std::string_view tensor) const {
  return std::any_of(saved_.begin(), saved_.end(), [&](const auto& entry) { return names_module(entry, tensor); });
}

Result<std::vector<std::uint64_t>> LoraConfig::tokens(std::string_view module) const {
  const Value* found = &tokens_;
  if (const auto* const map = tokens_.as_map()) {
    const auto own =
        std::find_if(map->begin(), map->end(), [&](const auto& entry) { return module.ends_with(entry.first); });
    if (own == map->end()) {
      return Error(Errc::malformed, "the adapter's configuration has no rows for an embedding with trained tokens")
          .path("trainable_token_indices")
          .expected(module)
          .found(text_of(tokens_));
    }
    found = &own->second;
  }
  auto rows = found->to<std::vector<std::uint64_t>>();
  if (!rows) return malformed("trainable_token_indices", "a list of rows", *found);
  return rows;
}

std::optional<std::string> LoraConfig::transformers_model() const {
  constexpr std::string_view prefix = "transformers.models.";
  if (!library_.starts_with(prefix)) return std::nullopt;
  return library_.substr(prefix.size(), library_.find('.', prefix.size()) - prefix.size());
}

}  // namespace stele::inline v0::detail::lora
