// Converts a Llama-like model of Hugging Face (config.json, tokenizer.json, *.safetensors) to GGUF, for llama.cpp:
//
//   llama_to_gguf FOLDER OUT.gguf [MIXTURE]
//
// MIXTURE is one of quantize_gguf(): F32, F16, Q8_0, Q4_K_M, …. The weights are never in memory as a whole: names,
// shapes and dtypes change now, and each tensor is read, permuted and quantized while the file is written.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <stele/quantize.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/stele.hpp>
#include <stele/transform.hpp>
#include <stele/value.hpp>

namespace {

using stele::Value;

// ---- JSON

Value read_json(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return stele::parse_json(text).value();
}

const Value& member(const Value& map, std::string_view key) {
  static const Value null;
  const Value* const value = map.find(key);
  return value != nullptr ? *value : null;
}

std::int64_t integer(const Value& config, std::string_view key) {
  const std::int64_t* const number = member(config, key).as_i64();
  if (number == nullptr || *number <= 0) throw std::runtime_error("config.json: no positive " + std::string(key));
  return *number;
}

double number(const Value& value, double otherwise) {
  if (value.as_f64() != nullptr) return *value.as_f64();
  return value.as_i64() != nullptr ? static_cast<double>(*value.as_i64()) : otherwise;
}

// ---- metadata

struct Config {
  std::int64_t layers, width, hidden, heads, key_heads, head_size, vocabulary, context;
  double epsilon, rope_base;
  Value rope;  // of scaled rotary embeddings

  explicit Config(const Value& json)
      : layers(integer(json, "num_hidden_layers")),
        width(integer(json, "hidden_size")),
        hidden(integer(json, "intermediate_size")),
        heads(integer(json, "num_attention_heads")),
        key_heads(member(json, "num_key_value_heads").is_null() ? heads : integer(json, "num_key_value_heads")),
        head_size(member(json, "head_dim").is_null() ? width / heads : integer(json, "head_dim")),
        vocabulary(integer(json, "vocab_size")),
        context(integer(json, "max_position_embeddings")),
        epsilon(number(member(json, "rms_norm_eps"), 1e-5)),
        rope_base(10000) {
    const std::string* const type = member(json, "model_type").as_string();
    if (type == nullptr || *type != "llama") throw std::runtime_error("config.json: model_type is not llama");
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (member(json, key).as_map() != nullptr) rope = member(json, key);
    }
    rope_base = number(member(rope, "rope_theta"), number(member(json, "rope_theta"), 10000));
  }

  void add_to(Value::Map& pairs) const {
    const auto add = [&](const char* key, Value value) {
      pairs.emplace_back("llama." + std::string(key), std::move(value));
    };
    add("block_count", Value(layers));
    add("context_length", Value(context));
    add("embedding_length", Value(width));
    add("feed_forward_length", Value(hidden));
    add("attention.head_count", Value(heads));
    add("attention.head_count_kv", Value(key_heads));
    add("attention.key_length", Value(head_size));
    add("attention.value_length", Value(head_size));
    // GGUF has f32: a number that is not exact in it would be stored as f64, which llama.cpp refuses.
    add("attention.layer_norm_rms_epsilon", Value(static_cast<double>(static_cast<float>(epsilon))));
    add("rope.freq_base", Value(static_cast<double>(static_cast<float>(rope_base))));
    add("rope.dimension_count", Value(head_size));
    add("vocab_size", Value(vocabulary));
  }
};

/// A byte-level BPE tokenizer, as GPT-2 and Llama 3 have it.
void add_tokenizer(const Value& json, const Value& settings, std::int64_t vocabulary, Value::Map& pairs) {
  const Value& model = member(json, "model");
  const Value::Map* const words = member(model, "vocab").as_map();
  const std::string* const type = member(model, "type").as_string();
  if (words == nullptr || type == nullptr || *type != "BPE")
    throw std::runtime_error("tokenizer.json: not a BPE model");
  enum : std::int64_t { normal = 1, control = 3, user_defined = 4, unused = 5 };
  const auto count = static_cast<std::size_t>(vocabulary);
  Value::List tokens(count, Value("")), types(count, Value(std::int64_t{unused}));
  const auto put = [&](const std::int64_t* id, const std::string& token, std::int64_t kind) {
    if (id == nullptr || *id < 0 || *id >= vocabulary)
      throw std::runtime_error("tokenizer.json: an id is out of range");
    tokens[static_cast<std::size_t>(*id)] = Value(token);
    types[static_cast<std::size_t>(*id)] = Value(kind);
  };
  for (std::size_t i = 0; i < count; ++i) tokens[i] = Value("[PAD" + std::to_string(i) + "]");
  for (const auto& [token, id] : *words) put(id.as_i64(), token, normal);
  std::int64_t bos = -1, eos = -1;
  const auto text_of = [](const Value& token) -> const std::string* {
    return token.as_map() != nullptr ? member(token, "content").as_string() : token.as_string();
  };
  const std::string* const begin = text_of(member(settings, "bos_token"));
  const std::string* const end = text_of(member(settings, "eos_token"));
  static const Value::List none;
  const Value::List* const added = member(json, "added_tokens").as_list();
  for (const Value& token : added != nullptr ? *added : none) {
    const std::string* const text = member(token, "content").as_string();
    const bool* const special = member(token, "special").as_bool();
    if (text == nullptr) throw std::runtime_error("tokenizer.json: an added token has no content");
    put(member(token, "id").as_i64(), *text, special != nullptr && *special ? control : user_defined);
    if (begin != nullptr && *begin == *text) bos = *member(token, "id").as_i64();
    if (end != nullptr && *end == *text) eos = *member(token, "id").as_i64();
  }
  Value::List merges;
  const Value::List* const pairs_of = member(model, "merges").as_list();
  for (const Value& merge : pairs_of != nullptr ? *pairs_of : none) {
    const Value::List* const parts = merge.as_list();  // older files: one string
    merges.push_back(parts != nullptr ? Value(*parts->at(0).as_string() + " " + *parts->at(1).as_string()) : merge);
  }
  pairs.emplace_back("tokenizer.ggml.model", Value("gpt2"));
  // The way to cut text into words, which llama.cpp knows by name.
  pairs.emplace_back("tokenizer.ggml.pre", Value("llama-bpe"));
  pairs.emplace_back("tokenizer.ggml.tokens", Value(std::move(tokens)));
  pairs.emplace_back("tokenizer.ggml.token_type", Value(std::move(types)));
  pairs.emplace_back("tokenizer.ggml.merges", Value(std::move(merges)));
  if (bos >= 0) pairs.emplace_back("tokenizer.ggml.bos_token_id", Value(bos));
  if (eos >= 0) pairs.emplace_back("tokenizer.ggml.eos_token_id", Value(eos));
  if (const std::string* const chat = member(settings, "chat_template").as_string()) {
    pairs.emplace_back("tokenizer.chat_template", Value(*chat));
  }
}

// ---- tensors

/// transformers rotates the first half of a head's rows with the second, llama.cpp neighbours: rows of [heads, 2, half]
/// become [heads, half, 2].
stele::Snapshot interleave(stele::Snapshot model, const std::string& pattern, std::int64_t heads,
                           const Config& config) {
  const auto extent = [](std::int64_t n) { return static_cast<stele::Extent>(n); };
  const stele::Extent half = extent(config.head_size / 2);
  const stele::Extent rows[] = {extent(heads), 2, half, extent(config.width)};
  const stele::Extent matrix[] = {extent(heads * config.head_size), extent(config.width)};
  const std::size_t axes[] = {0, 2, 1, 3};
  model = stele::reshape(model, pattern, rows).value();
  model = stele::transpose(model, pattern, axes).value();
  return stele::reshape(model, pattern, matrix).value();
}

struct RopeFactors {
  stele::Tensor<float, 1> weight;
};
struct Rope {
  RopeFactors rope_freqs;
};

/// The factors of Llama 3.1's rotary embeddings: wavelengths above the trained context are stretched.
stele::Tensor<float, 1> rope_factors(const Config& config) {
  const double pi = std::acos(-1.0);
  const double factor = number(member(config.rope, "factor"), 8);
  const double low = number(member(config.rope, "low_freq_factor"), 1);
  const double high = number(member(config.rope, "high_freq_factor"), 4);
  const double context = number(member(config.rope, "original_max_position_embeddings"), 8192);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < config.head_size; i += 2) {
    const double power = static_cast<double>(i) / static_cast<double>(config.head_size);
    const double wavelength = 2 * pi * std::pow(config.rope_base, power);
    const double smooth = (context / wavelength - low) / (high - low);
    const double f = wavelength < context / high  ? 1
                     : wavelength > context / low ? factor
                                                  : 1 / ((1 - smooth) / factor + smooth);
    factors.push_back(static_cast<float>(f));
  }
  return stele::Tensor<float, 1>({factors.size()}, factors);
}

/// `rope` must outlive the result, which refers to it.
stele::Snapshot convert(const std::string& folder, const std::string& mixture, Rope& rope) {
  const Value json = read_json(folder + "/config.json");
  const Config config(json);
  const std::string index = folder + "/model.safetensors.index.json";
  stele::Snapshot model = stele::open(std::filesystem::exists(index) ? index : folder + "/model.safetensors").value();
  const std::vector<stele::Rename> names = {
      {R"(^model\.embed_tokens\.)", "token_embd."},
      {R"(^model\.norm\.)", "output_norm."},
      {R"(^lm_head\.)", "output."},
      {R"(^model\.layers\.(\d+)\.)", R"(blk.\1.)"},
      {R"(\.input_layernorm\.)", ".attn_norm."},
      {R"(\.post_attention_layernorm\.)", ".ffn_norm."},
      {R"(\.self_attn\.([qkv])_proj\.)", R"(.attn_\1.)"},
      {R"(\.self_attn\.o_proj\.)", ".attn_output."},
      {R"(\.mlp\.(gate|up|down)_proj\.)", R"(.ffn_\1.)"},
  };
  model = stele::rename(model, names).value();
  model = interleave(model, "blk.*.attn_q.weight", config.heads, config);
  model = interleave(model, "blk.*.attn_k.weight", config.key_heads, config);
  const stele::PrecisionRule norms[] = {{"*_norm.weight", {.floating = stele::DType::f32}}};
  model = stele::with_precision(model, norms);
  if (const std::string* const type = member(config.rope, "rope_type").as_string();
      type != nullptr && *type == "llama3") {
    rope.rope_freqs.weight = rope_factors(config);
    const stele::Snapshot parts[] = {model, stele::snapshot_of(rope).value()};
    model = stele::merge(parts).value();
  } else if (type != nullptr && *type != "default") {
    throw std::runtime_error("config.json: unknown rope_type " + *type);
  }

  Value::Map pairs;
  pairs.emplace_back("general.architecture", Value("llama"));
  pairs.emplace_back("general.type", Value("model"));
  config.add_to(pairs);
  add_tokenizer(read_json(folder + "/tokenizer.json"), read_json(folder + "/tokenizer_config.json"), config.vocabulary,
                pairs);
  model =
      stele::with_metadata(stele::with_properties(model, Value(std::move(pairs))), {{"general.architecture", "llama"}});
  return stele::quantize_gguf(model, mixture).value();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string folder = argc > 2 ? argv[1] : argc > 1 ? std::string(argv[1]) + "/llama" : "examples/data/llama";
    const std::string out = argc > 2 ? argv[2] : "llama.gguf";
    const std::string mixture = argc > 3 ? argv[3] : "Q8_0";
    Rope rope;
    const stele::Snapshot model = convert(folder, mixture, rope);
    const stele::Report report = stele::save(stele::GgufFormat(), {}, model, out).value();
    const stele::Snapshot file = stele::open(out).value();
    for (std::size_t i = 0; i < file.leaf_count(); ++i) {
      const stele::LeafView leaf = file.leaf(i);
      std::printf("%-28s %-5s %s\n", leaf.path().c_str(), std::string(stele::name(leaf.dtype())).c_str(),
                  stele::to_string(leaf.shape()).c_str());
    }
    std::printf("%s%zu tensors, %zu key-value pairs, %llu bytes of tensors in %s\n", report.to_string().c_str(),
                file.leaf_count(), file.properties().as_map()->size(),
                static_cast<unsigned long long>(file.byte_size()), out.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
