// Converts a model of the hub for llama.cpp: finds its architecture, and joins tensors, hyperparameters and tokenizer.
#include "stele/transforms/llama_cpp.hpp"

#include <algorithm>
#include <utility>

#include "encodings/gguf/types.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "parts.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/data.hpp"
#include "snapshot/side_files.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/expansion.hpp"
#include "stele/transform.hpp"

namespace stele::inline v0 {
namespace detail::llama_cpp {

const Value& member(const Value& map, std::string_view key) {
  static const Value null;
  const Value* const value = map.find(key);
  return value != nullptr ? *value : null;
}

std::string_view text(const Value& map, std::string_view key) {
  const std::string* const found = member(map, key).as_string();
  return found != nullptr ? std::string_view(*found) : std::string_view();
}

bool flag(const Value& map, std::string_view key, bool otherwise) {
  const bool* const found = member(map, key).as_bool();
  return found != nullptr ? *found : otherwise;
}

const Value::List& list(const Value& map, std::string_view key) {
  static const Value::List none;
  const Value::List* const found = member(map, key).as_list();
  return found != nullptr ? *found : none;
}

std::optional<double> number(const Value& value) {
  if (value.as_f64() != nullptr) return *value.as_f64();
  return value.as_i64() != nullptr ? std::optional(static_cast<double>(*value.as_i64())) : std::nullopt;
}

std::string shown(const Value& value) {
  constexpr std::size_t max_bytes = 100;
  std::string json = to_json(value).value_or("?");
  if (json.size() > max_bytes) json.resize(max_bytes);
  return json;
}

Result<std::int64_t> positive(const Value& config, std::string_view key) {
  constexpr std::int64_t max = 0x7fffffff;  // llama.cpp's counts have 32 bits
  const Value& value = member(config, key);
  if (value.is_null()) return Error(Errc::missing, "config.json lacks a setting").path(key);
  if (value.as_i64() != nullptr && *value.as_i64() > 0 && *value.as_i64() <= max) return *value.as_i64();
  return Error(Errc::malformed, "config.json has an unexpected value")
      .path(key)
      .expected("a positive integer")
      .found(shown(value));
}

Value f32(double value) { return Value(static_cast<double>(static_cast<float>(value))); }

Error not_for_llama_cpp(std::string_view path, std::string_view expected, std::string_view found) {
  return Error(Errc::unsupported, "not a model for llama.cpp").path(path).expected(expected).found(found);
}

Result<std::optional<std::string>> text_of(const Bundle& folder, std::string_view name) {
  constexpr std::uint64_t max_bytes = std::uint64_t{256} << 20;
  STELE_TRY_ASSIGN(const bool exists, folder.contains(name));
  if (!exists) return std::optional<std::string>();
  STELE_TRY_ASSIGN(const SourcePtr file, folder.open(name));
  STELE_TRY_ASSIGN(std::string all, read_text(*file, max_bytes));
  return std::optional(std::move(all));
}

namespace {

/// Parses an object without members that have integers of more than 64 bits: transformers writes 10^30 as an integer
/// where a tokenizer has no bound (model_max_length).
Result<Value> without_large_integers(std::string_view text) {
  json::Reader in(text);
  Value::Map all;
  std::string scratch;
  std::string_view key, raw;
  if (!in.begin_object()) return in.error();
  while (in.next_key(key, scratch)) {
    std::string name(key);
    if (!in.skip_value(&raw)) return in.error();
    auto value = parse_json(raw);
    if (!value && value.error().code() == Errc::out_of_range) continue;
    if (!value) return value;
    all.emplace_back(std::move(name), *std::move(value));
  }
  if (!in.finish()) return in.error();
  return Value(std::move(all));
}

}  // namespace

Result<Value> json_of(const Bundle& folder, std::string_view name) {
  STELE_TRY_ASSIGN(const auto json, text_of(folder, name));
  if (!json) return Value();
  auto value = parse_json(*json);
  if (!value && value.error().code() == Errc::out_of_range) value = without_large_integers(*json);
  if (!value) return std::move(value).error().file(name);
  return value;
}

namespace {

std::string all_types() {
  std::string all;
  for (const Architecture& a : architectures()) all += (all.empty() ? "" : ", ") + std::string(a.model_type);
  return all;
}

/// Returns general.file_type: the number of the dtype that most matrices have.
std::int64_t file_type(const Snapshot& snapshot) {
  std::map<DType, std::size_t> counts;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (snapshot.leaf(i).shape().size() > 1) ++counts[snapshot.leaf(i).dtype()];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::uint32_t type = most != counts.end() ? gguf::file_type_of(most->first) : gguf::no_type;
  return type != gguf::no_type ? type : 0;
}

/// Returns the files beside the weights whose content is not in the pairs.
std::shared_ptr<const SideFiles> without_used(const std::shared_ptr<const SideFiles>& beside) {
  constexpr std::string_view used[] = {
      "added_tokens.json",       "chat_template.jinja", "chat_template.json", "config.json",           "merges.txt",
      "special_tokens_map.json", "tokenizer.json",      "tokenizer.model",    "tokenizer_config.json", "vocab.json"};
  if (beside == nullptr) return beside;
  auto rest = std::make_shared<SideFiles>(*beside);
  std::erase_if(rest->names, [&](const std::string& name) {
    return std::find(std::begin(used), std::end(used), name) != std::end(used);
  });
  return rest->names.empty() ? nullptr : rest;
}

Result<Snapshot> convert(const Snapshot& model, const Bundle& folder, Report& rows) {
  STELE_TRY(check_decoded(model));
  STELE_TRY(check_expansion(model));  // the list of tokens is as long as the embedding
  STELE_TRY_ASSIGN(const Value config, json_of(folder, "config.json"));
  const Architecture* const architecture = find_architecture(text(config, "model_type"));
  if (architecture == nullptr) {
    const Value& type = member(config, "model_type");
    return not_for_llama_cpp("config.json: model_type", all_types(), type.is_null() ? "none" : shown(type));
  }
  Value::Map pairs{{std::string(gguf::architecture_key), Value(architecture->name)}, {"general.type", Value("model")}};
  Factors factors;
  STELE_TRY_ASSIGN(const Sizes sizes, add_hyperparameters(*architecture, config, pairs, factors, rows));
  STELE_TRY_ASSIGN(Snapshot converted, tensors_of(*architecture, config, sizes, model, rows));
  STELE_TRY(add_tokenizer(*architecture, config, sizes, folder, pairs, rows));
  if (!factors.empty()) {
    const Snapshot parts[] = {converted, vectors_of(factors)};
    STELE_TRY_ASSIGN(converted, merge(parts));
  }
  pairs.emplace_back(std::string(gguf::file_type_key), Value(file_type(converted)));
  pairs.emplace_back(std::string(gguf::quantization_version_key), Value(std::int64_t{gguf::quantization_version}));
  // The model's files have these, and what they describe is decoded.
  auto data = derived_data(with_properties(converted, Value(std::move(pairs))));
  data->metadata.erase(composites::config_key);
  data->metadata.erase(composites::model_type_key);
  data->metadata[std::string(gguf::architecture_key)] = std::string(architecture->name);
  data->beside = without_used(data->beside);
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace
}  // namespace detail::llama_cpp

namespace llama_cpp {

Result<Snapshot> from_hub(const Snapshot& model, const Bundle& folder, Report* report) {
  return detail::guarded([&]() -> Result<Snapshot> {
    Report rows;
    STELE_TRY_ASSIGN(Snapshot converted, detail::llama_cpp::convert(model, folder, rows));
    for (std::size_t i = 0; report != nullptr && i < rows.size(); ++i) {
      report->add(rows[i].what, rows[i].path, rows[i].detail);
    }
    return converted;
  });
}

Result<Snapshot> from_hub(const Snapshot& model, Report* report) {
  const auto& beside = model.data()->beside;
  if (beside != nullptr) return from_hub(model, *beside->folder, report);
  return Error(Errc::invalid_argument, "the model is not from a folder of the hub")
      .hint("call from_hub() with the folder of config.json");
}

bool is_model_config(const Value& config) {
  return config.find("model_type") != nullptr || config.find("architectures") != nullptr;
}

bool has_known_names(const Snapshot& model) {
  const auto all = detail::llama_cpp::architectures();
  return std::any_of(all.begin(), all.end(), [&](const auto& a) { return detail::llama_cpp::has_names_of(a, model); });
}

}  // namespace llama_cpp
}  // namespace stele::inline v0
