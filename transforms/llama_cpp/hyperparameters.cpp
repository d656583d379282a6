// Hyperparameters: config.json of transformers -> the key-value pairs of llama.cpp.
#include <algorithm>
#include <cmath>

#include "parts.hpp"

namespace stele::inline v0::detail::llama_cpp {
namespace {

class Hyperparameters {
 public:
  Hyperparameters(const Architecture& architecture, const Value& config, Value::Map& pairs, Factors& factors,
                  Report& rows)
      : is_(architecture), config_(config), pairs_(pairs), factors_(factors), rows_(rows) {}

  Result<Sizes> run() {
    STELE_TRY(check_settings());
    for (const auto& keys : is_.keys) {
      for (const KeyRow& row : keys) STELE_TRY(add_key(row));
    }
    Sizes sizes;
    sizes.layers = added("block_count");
    sizes.width = added("embedding_length");
    sizes.heads = added("attention.head_count");
    sizes.key_heads = std::max(added("attention.head_count_kv"), std::int64_t{0});
    sizes.experts = std::max(added("expert_count"), std::int64_t{0});
    sizes.vocabulary = added("vocab_size");
    sizes.head = is_.head_size != 0 ? is_.head_size : sizes.width / sizes.heads;
    if (!member(config_, "head_dim").is_null()) {
      STELE_TRY_ASSIGN(sizes.head, positive(config_, "head_dim"));
    }
    STELE_TRY(check_windows(sizes));
    if (is_.rope != Rope::none) STELE_TRY(add_rope(sizes));
    return sizes;
  }

 private:
  void add(std::string_view key, Value value) {
    pairs_.emplace_back(std::string(is_.name) + "." + std::string(key), std::move(value));
  }
  /// Returns the value of a pair that was added; -1 if there is none.
  std::int64_t added(std::string_view key) const {
    const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& pair) {
      return pair.first.size() == is_.name.size() + 1 + key.size() && pair.first.ends_with(key);
    });
    return found != pairs_.end() && found->second.as_i64() != nullptr ? *found->second.as_i64() : -1;
  }

  Status check_settings() const {
    for (const auto& settings : is_.settings) {
      for (const SettingRow& row : settings) {
        const Value& value = member(config_, row.key);
        const bool* const set = value.as_bool();
        const std::string_view found = set != nullptr                 ? (*set ? "true" : "false")
                                       : value.as_string() != nullptr ? std::string_view(*value.as_string())
                                                                      : std::string_view();
        const std::string values = "|" + std::string(row.values) + "|";
        const bool known = !found.empty() && values.find("|" + std::string(found) + "|") != values.npos;
        if (!value.is_null() && !known) return not_for_llama_cpp(row.key, row.values, shown(value));
      }
    }
    return {};
  }

  Status add_key(const KeyRow& row) {
    std::string_view from = row.from[0];
    if (!row.from[1].empty() && member(config_, from).is_null()) from = row.from[1];
    const std::int64_t factor = from == row.from[1] ? row.factor : 1;
    const Value& value = member(config_, from);
    if (value.is_null() && row.otherwise == KeyRow::left_out) return {};
    if (value.is_null() && row.otherwise != KeyRow::required) {
      add(row.key,
          row.kind == KeyRow::Kind::real ? f32(row.otherwise) : Value(static_cast<std::int64_t>(row.otherwise)));
      return {};
    }
    if (row.kind == KeyRow::Kind::real) {
      const auto found = number(value);
      if (!found) return malformed(from, "a number");
      add(row.key, f32(*found));
      return {};
    }
    STELE_TRY_ASSIGN(const std::int64_t count, positive(config_, from));
    add(row.key, Value(count * factor));
    return {};
  }

  Error malformed(std::string_view key, std::string_view expected) const {
    return Error(Errc::malformed, "config.json has an unexpected value")
        .path(key)
        .expected(expected)
        .found(shown(member(config_, key)));
  }

  /// Checks the layers with a sliding window, and the scale of queries.
  Status check_windows(const Sizes& sizes) {
    if (is_.period == 0) {
      const std::int64_t* const window = member(config_, "sliding_window").as_i64();
      const bool used = flag(config_, "use_sliding_window", true) && added("attention.sliding_window") < 0;
      if (used && window != nullptr && *window < added("context_length")) {
        rows_.add(Report::What::unused, "sliding_window",
                  "llama.cpp attends to all tokens, also those before the last " + std::to_string(*window));
      }
      return {};
    }
    const Value::List& types = list(config_, "layer_types");
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::string_view wanted = i % is_.period + 1 < is_.period ? "sliding_attention" : "full_attention";
      if (types[i] != Value(wanted)) return not_for_llama_cpp("layer_types", wanted, shown(types[i]));
    }
    const Value& pattern = member(config_, "sliding_window_pattern");
    if (!pattern.is_null() && pattern != Value(static_cast<std::int64_t>(is_.period))) {
      return not_for_llama_cpp("sliding_window_pattern", std::to_string(is_.period), shown(pattern));
    }
    const std::int64_t scale = sizes.layers == is_.large ? sizes.width / sizes.heads : sizes.head;
    const auto found = number(member(config_, "query_pre_attn_scalar"));
    if (found && *found != static_cast<double>(scale))
      return not_for_llama_cpp("query_pre_attn_scalar", std::to_string(scale), shown(Value(*found)));
    return {};
  }

  // ---- rotary embeddings

  Status add_rope(const Sizes& sizes) {
    const Value& stored =
        member(config_, member(config_, "rope_parameters").is_null() ? "rope_scaling" : "rope_parameters");
    const Value& full = member(stored, "full_attention");
    rope_ = full.is_null() ? stored : full;
    type_ = text(rope_, member(rope_, "rope_type").is_null() ? "type" : "rope_type");
    double base = is_.rope_base;
    for (const Value* const from : std::initializer_list<const Value*>{&rope_, &config_}) {
      const auto theta = number(member(*from, "rope_theta"));
      if (!theta) continue;
      base = *theta;
      break;
    }
    STELE_TRY_ASSIGN(const std::int64_t rotated, rotated_size(sizes.head));
    STELE_TRY(is_.rope == Rope::phi3 ? add_long_factors(rotated) : add_scaling(sizes.head, base));
    add("rope.freq_base", f32(base));
    if (is_.rope == Rope::gemma3) {
      const auto own = number(member(member(stored, "sliding_attention"), "rope_theta"));
      const auto old = number(member(config_, "rope_local_base_freq"));
      add("rope.freq_base_swa", f32(own ? *own : old ? *old : 1e4));
    }
    add("rope.dimension_count", Value(rotated));
    add("attention.key_length", Value(sizes.head));
    add("attention.value_length", Value(sizes.head));
    return {};
  }

  /// Returns the number of a head's elements that are rotated: all, except in phi3.
  Result<std::int64_t> rotated_size(std::int64_t head) const {
    double part = 1;
    for (const Value* const from : std::initializer_list<const Value*>{&rope_, &config_})
      part = number(member(*from, "partial_rotary_factor")).value_or(part);
    const auto size = static_cast<std::int64_t>(part * static_cast<double>(head));
    if (size == head || (is_.rope == Rope::phi3 && size > 0 && size < head)) return size;
    return not_for_llama_cpp("partial_rotary_factor", "1", shown(Value(part)));
  }

  Status add_scaling(std::int64_t head, double base) {
    const bool yarn = type_ == "yarn";
    constexpr std::string_view known[] = {"", "default", "linear", "yarn", "dynamic", "llama3"};
    if (std::find(std::begin(known), std::end(known), type_) == std::end(known))
      return not_for_llama_cpp("rope_type", "default, linear, yarn, dynamic or llama3", type_);
    if (type_ == "dynamic") rows_.add(Report::What::unused, "rope_type", "llama.cpp has no dynamic scaling");
    if (type_ == "llama3") return add_llama3_factors(head, base);
    const auto factor = number(member(rope_, "factor"));
    if ((!yarn && type_ != "linear") || !factor) return {};
    add("rope.scaling.type", Value(type_));
    add("rope.scaling.factor", f32(*factor));
    if (!yarn) return {};
    STELE_TRY_ASSIGN(const std::int64_t original, positive(rope_, "original_max_position_embeddings"));
    add("rope.scaling.original_context_length", Value(original));
    const bool renamed = member(rope_, "attention_factor").is_null();
    for (const auto& [key, name] : {std::pair<std::string_view, std::string_view>("extrapolation_factor", "ext_factor"),
                                    {renamed ? "attn_factor" : "attention_factor", "attn_factor"},
                                    {"beta_fast", "beta_fast"},
                                    {"beta_slow", "beta_slow"}}) {
      const auto value = number(member(rope_, key));
      if (value) add("rope.scaling.yarn_" + std::string(name), f32(*value));
    }
    return {};
  }

  /// Adds the factors of Llama 3.1's rotary embeddings: wavelengths above the trained context are stretched.
  Status add_llama3_factors(std::int64_t head, double base) {
    const auto setting = [&](const char* key, double otherwise) {
      return number(member(rope_, key)).value_or(otherwise);
    };
    const double pi = std::acos(-1.0);
    const double factor = setting("factor", 8);
    const double low = setting("low_freq_factor", 1), high = setting("high_freq_factor", 4);
    const double context = setting("original_max_position_embeddings", 8192);
    std::vector<float>& factors = factors_["rope_freqs.weight"];
    for (std::int64_t i = 0; i < head; i += 2) {
      const double wavelength = 2 * pi * std::pow(base, static_cast<double>(i) / static_cast<double>(head));
      const double smooth = (context / wavelength - low) / (high - low);
      const double f = wavelength < context / high  ? 1
                       : wavelength > context / low ? factor
                                                    : 1 / ((1 - smooth) / factor + smooth);
      factors.push_back(static_cast<float>(f));
    }
    return {};
  }

  /// Adds Phi 3's factors for long and short texts.
  Status add_long_factors(std::int64_t rotated) {
    constexpr std::string_view known[] = {"", "default", "su", "longrope", "yarn"};
    if (std::find(std::begin(known), std::end(known), type_) == std::end(known))
      return not_for_llama_cpp("rope_type", "default, longrope, su or yarn", type_);
    if (type_.empty() || type_ == "default") return {};
    const auto context = static_cast<double>(added("context_length"));
    const auto original = static_cast<double>(added("rope.scaling.original_context_length"));
    const double scale = context / original;
    const double attention = scale <= 1        ? 1
                             : type_ == "yarn" ? 0.1 * std::log(scale) + 1
                                               : std::sqrt(1 + std::log(scale) / std::log(original));
    add("rope.scaling.attn_factor", f32(attention));
    for (const auto& [key, name] :
         {std::pair("long_factor", "rope_factors_long.weight"), {"short_factor", "rope_factors_short.weight"}}) {
      const Value::List& numbers = list(rope_, key);
      if (numbers.size() != static_cast<std::size_t>(rotated / 2)) {
        return Error(Errc::malformed, "config.json has another number of factors of rotary embeddings")
            .path(key)
            .expected(std::to_string(rotated / 2))
            .found(std::to_string(numbers.size()));
      }
      for (const Value& value : numbers) {
        const auto factor = number(value);
        if (!factor) return Error(Errc::malformed, "a factor of rotary embeddings is not a number").path(key);
        factors_[name].push_back(static_cast<float>(*factor));
      }
    }
    return {};
  }

  const Architecture& is_;
  const Value& config_;
  Value::Map& pairs_;
  Factors& factors_;
  Report& rows_;
  Value rope_;
  std::string type_;  // of rope_; older files call it "type"
};

}  // namespace

Result<Sizes> add_hyperparameters(const Architecture& architecture, const Value& config, Value::Map& pairs,
                                  Factors& factors, Report& rows) {
  return Hyperparameters(architecture, config, pairs, factors, rows).run();
}

}  // namespace stele::inline v0::detail::llama_cpp
