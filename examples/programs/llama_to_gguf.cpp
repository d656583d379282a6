// Converts a Llama-like model of Hugging Face (config.json, tokenizer.json, *.safetensors) to GGUF, for llama.cpp:
//
//   llama_to_gguf FOLDER OUT.gguf [MIXTURE]
//
// MIXTURE is one of quantize_gguf(): F32, F16, Q8_0, Q4_K_M, …. The weights are never in memory as a whole: names,
// shapes and dtypes change now, and each tensor is read, permuted and quantized while the file is written.
//
// The key-value pairs are those of llama.cpp's convert_hf_to_gguf.py, without general.name and the other pairs for the
// model's page. tests/command/llama_test.py has a table of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <stele/pattern.hpp>
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

std::string text(const Value& map, std::string_view key) {
  const std::string* const found = member(map, key).as_string();
  return found != nullptr ? *found : std::string();
}

bool flag(const Value& map, std::string_view key) {
  const bool* const found = member(map, key).as_bool();
  return found != nullptr && *found;
}

const Value::List& list(const Value& map, std::string_view key) {
  static const Value::List none;
  const Value::List* const found = member(map, key).as_list();
  return found != nullptr ? *found : none;
}

/// GGUF has f32: a number that is not exact in it would be stored as f64, which llama.cpp refuses.
Value f32(double value) { return Value(static_cast<double>(static_cast<float>(value))); }

// ---- metadata

struct Config {
  std::int64_t layers, width, hidden, heads, key_heads, head_size, vocabulary, context;
  double epsilon, rope_base;
  Value rope;             // of scaled rotary embeddings
  std::string rope_type;  // "default", "linear", …; older files call it "type"

  explicit Config(const Value& json)
      : layers(integer(json, "num_hidden_layers")),
        width(integer(json, "hidden_size")),
        hidden(integer(json, "intermediate_size")),
        heads(integer(json, "num_attention_heads")),
        key_heads(member(json, "num_key_value_heads").is_null() ? heads : integer(json, "num_key_value_heads")),
        head_size(member(json, "head_dim").is_null() ? width / heads : integer(json, "head_dim")),
        vocabulary(integer(json, "vocab_size")),
        context(member(json, "max_position_embeddings").is_null() ? 2048 : integer(json, "max_position_embeddings")),
        epsilon(number(member(json, "rms_norm_eps"), 1e-6)),
        rope(member(json, member(json, "rope_parameters").is_null() ? "rope_scaling" : "rope_parameters")),
        rope_type(text(rope, member(rope, "rope_type").is_null() ? "type" : "rope_type")) {
    if (text(json, "model_type") != "llama") throw std::runtime_error("config.json: model_type is not llama");
    rope_base = number(member(rope, "rope_theta"), number(member(json, "rope_theta"), 10000));
    for (const std::string_view known : {"", "default", "linear", "yarn", "dynamic", "llama3"}) {
      if (rope_type == known) return;
    }
    throw std::runtime_error("config.json: unknown rope_type " + rope_type);
  }

  void add_to(Value::Map& pairs) const {
    const auto add = [&](const std::string& key, Value value) { pairs.emplace_back("llama." + key, std::move(value)); };
    add("block_count", Value(layers));
    add("context_length", Value(context));
    add("embedding_length", Value(width));
    add("feed_forward_length", Value(hidden));
    add("attention.head_count", Value(heads));
    add("attention.head_count_kv", Value(key_heads));
    add_scaling(add);
    add("rope.freq_base", f32(rope_base));
    add("attention.layer_norm_rms_epsilon", f32(epsilon));
    add("attention.key_length", Value(head_size));
    add("attention.value_length", Value(head_size));
    add("vocab_size", Value(vocabulary));
    add("rope.dimension_count", Value(head_size));
  }

 private:
  /// llama.cpp has no key for "dynamic"; the factors of "llama3" are a tensor.
  template <class Add>
  void add_scaling(Add add) const {
    const bool yarn = rope_type == "yarn";
    if ((!yarn && rope_type != "linear") || member(rope, "factor").is_null()) return;
    add("rope.scaling.type", Value(rope_type));
    add("rope.scaling.factor", f32(number(member(rope, "factor"), 1)));
    if (!yarn) return;
    add("rope.scaling.original_context_length", Value(integer(rope, "original_max_position_embeddings")));
    const bool renamed = member(rope, "attention_factor").is_null();
    for (const auto& [key, name] : {std::pair("extrapolation_factor", "yarn_ext_factor"),
                                    {renamed ? "attn_factor" : "attention_factor", "yarn_attn_factor"},
                                    {"beta_fast", "yarn_beta_fast"},
                                    {"beta_slow", "yarn_beta_slow"}}) {
      const Value& value = member(rope, key);
      if (!value.is_null()) add("rope.scaling." + std::string(name), f32(number(value, 1)));
    }
  }
};

// ---- tokenizers

/// Types of tokens in llama.cpp.
enum : std::int64_t { normal = 1, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// Returns the name of llama.cpp's way to cut text into words. Throws if llama.cpp has none.
std::string words_of(const Value& tokenizer) {
  constexpr std::string_view llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Value& first = member(tokenizer, "pre_tokenizer");
  const Value::List parts = text(first, "type") == "Sequence" ? list(first, "pretokenizers") : Value::List{first};
  const auto is_bytes = [&](std::size_t i, bool regex) {
    return i + 1 == parts.size() && text(parts[i], "type") == "ByteLevel" && flag(parts[i], "use_regex") == regex;
  };
  if (is_bytes(0, true)) return "gpt-2";
  if (parts.size() == 2 && text(parts[0], "type") == "Digits" && flag(parts[0], "individual_digits") &&
      is_bytes(1, true)) {
    return "smollm";
  }
  if (parts.size() == 2 && text(member(parts[0], "pattern"), "Regex") == llama3 && is_bytes(1, false)) {
    return "llama-bpe";
  }
  throw std::runtime_error("tokenizer.json: an unknown way to cut text into words (pre_tokenizer)");
}

/// Tokens that some models mark as ordinary, although they are control tokens.
bool looks_special(const std::string& token) {
  const auto within = [&](std::string_view begin, std::string_view end) {
    return token.size() >= begin.size() + end.size() && token.starts_with(begin) && token.ends_with(end);
  };
  return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" || within("<|", "|>") ||
         within("<｜", "｜>") || within("<unused", ">");
}

std::string without_word_marks(std::string token) {
  const std::string mark = "▁";
  for (std::size_t at; (at = token.find(mark)) != token.npos;) token.replace(at, mark.size(), " ");
  return token;
}

class Tokenizer {
 public:
  Tokenizer(const std::string& folder, const Value& config, std::int64_t vocabulary)
      : json_(read_json(folder + "/tokenizer.json")),
        settings_(read_json(folder + "/tokenizer_config.json")),
        config_(config),
        model_(member(json_, "model")),
        size_(vocabulary) {
    if (text(model_, "type") != "BPE" || member(model_, "vocab").as_map() == nullptr)
      throw std::runtime_error("tokenizer.json: not a BPE model");
    const std::filesystem::path chat = folder + "/chat_template.jinja";
    chat_ = text(settings_, "chat_template");
    if (!chat_.empty() || !std::filesystem::exists(chat)) return;
    std::ifstream in(chat, std::ios::binary);
    chat_.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }

  void add_to(Value::Map& pairs) {
    // SentencePiece's tokenizers spell unknown characters in bytes, <0x00> to <0xFF>; GPT-2's have an alphabet for
    // them.
    const bool sentencepiece = flag(model_, "byte_fallback");
    add_tokens(sentencepiece);
    const auto add = [&](const std::string& key, Value value) {
      pairs.emplace_back("tokenizer." + key, std::move(value));
    };
    if (const bool* const space = member(settings_, "add_prefix_space").as_bool()) {
      add("ggml.add_space_prefix", Value(*space));
    }
    add("ggml.model", Value(sentencepiece ? "llama" : "gpt2"));
    add("ggml.pre", Value(sentencepiece ? "default" : words_of(json_)));
    add("ggml.tokens", Value(std::move(tokens_)));
    if (sentencepiece) add("ggml.scores", Value(std::move(scores_)));
    add("ggml.token_type", Value(std::move(types_)));
    if (!sentencepiece) add("ggml.merges", merges());
    for (const auto& [name, key] : {std::pair("bos", "bos"),
                                    {"eos", "eos"},
                                    {"unk", "unknown"},
                                    {"sep", "seperator"},
                                    {"pad", "padding"},
                                    {"cls", "cls"},
                                    {"mask", "mask"}}) {
      if (const auto id = special(name)) add("ggml." + std::string(key) + "_token_id", Value(*id));
    }
    read_template();
    for (const auto& [name, added] : added_) add("ggml.add_" + name + "_token", Value(added));
    if (!chat_.empty()) add("chat_template", Value(chat_));
    if (size_ == 32016) {  // CodeLlama
      for (const auto& [name, id] :
           {std::pair("prefix", 32007), {"suffix", 32008}, {"middle", 32009}, {"eot", 32010}}) {
        add("ggml." + std::string(name) + "_token_id", Value(std::int64_t{id}));
      }
    }
  }

 private:
  void put(const std::int64_t* id, const std::string& token, std::int64_t type) {
    if (id == nullptr || *id < 0 || *id >= size_) throw std::runtime_error("tokenizer.json: an id is out of range");
    tokens_[static_cast<std::size_t>(*id)] = Value(token);
    types_[static_cast<std::size_t>(*id)] = Value(type);
  }

  void add_tokens(bool sentencepiece) {
    const auto count = static_cast<std::size_t>(size_);
    for (std::size_t i = 0; i < count; ++i) tokens_.emplace_back("[PAD" + std::to_string(i) + "]");
    types_.assign(count, Value(std::int64_t{unused}));
    const Value::Map& words = *member(model_, "vocab").as_map();
    for (const auto& [token, id] : words) {
      const bool in_bytes = sentencepiece && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      put(id.as_i64(), token, in_bytes ? byte : normal);
    }
    for (const Value& token : list(json_, "added_tokens")) {
      const std::string content = text(token, "content");
      const std::int64_t* const id = member(token, "id").as_i64();
      const bool special = flag(token, "special") || (!sentencepiece && looks_special(content));
      const bool known = sentencepiece && id != nullptr && *id < static_cast<std::int64_t>(words.size());
      if (known && !special) continue;
      put(id, special || sentencepiece ? content : without_word_marks(content), special ? control : user_defined);
    }
    if (sentencepiece) add_scores(words);
  }

  /// llama.cpp merges the pair with the highest score: the first in the list of merges. (Its own converter writes -1000
  /// for every token if there is no tokenizer.model, with which it would merge from left to right.)
  void add_scores(const Value::Map& words) {
    scores_.assign(static_cast<std::size_t>(size_), f32(-1000));
    std::map<std::string_view, std::size_t> ids;
    for (const auto& [token, id] : words) ids.emplace(token, static_cast<std::size_t>(*id.as_i64()));
    const Value merged = merges(false);
    for (std::size_t i = merged.as_list()->size(); i-- > 0;) {  // the first one of a token is the last one here
      const auto id = ids.find(*(*merged.as_list())[i].as_string());
      if (id != ids.end()) scores_[id->second] = f32(-static_cast<double>(i));
    }
    // Single characters come after all pairs.
    const double last = -static_cast<double>(merged.as_list()->size());
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (types_[i] == Value(std::int64_t{normal}) && scores_[i] == f32(-1000)) scores_[i] = f32(last);
    }
  }

  /// The pairs of pieces that are merged, with a space between them, or joined.
  Value merges(bool spaced = true) const {
    Value::List out;
    for (const Value& merge : list(model_, "merges")) {
      std::string one, other;
      if (const Value::List* const parts = merge.as_list()) {
        one = *parts->at(0).as_string(), other = *parts->at(1).as_string();
      } else {  // older files: one string
        const std::string& both = *merge.as_string();
        one = both.substr(0, both.find(' ')), other = both.substr(both.find(' ') + 1);
      }
      if (spaced) replace_spaces(one), replace_spaces(other);
      out.emplace_back(one.append(spaced ? " " : "").append(other));
    }
    return Value(std::move(out));
  }
  /// The space between the pieces must be the only one.
  static void replace_spaces(std::string& piece) {
    for (std::size_t at; (at = piece.find(' ')) != piece.npos;) piece.replace(at, 1, "Ġ");
  }

  /// Returns the text of a special token: "bos", "eos", …
  std::string special_text(const std::string& name) const {
    const Value& token = member(settings_, name + "_token");
    return token.as_map() != nullptr ? text(token, "content") : text(settings_, name + "_token");
  }

  /// Returns the id of a special token: by its text, or as the model's configuration has it.
  std::optional<std::int64_t> special(const std::string& name) const {
    const std::string content = special_text(name);
    for (const Value& token : list(json_, "added_tokens")) {
      if (!content.empty() && text(token, "content") == content) return *member(token, "id").as_i64();
    }
    const std::int64_t* const id = member(config_, name + "_token_id").as_i64();
    return id != nullptr && *id >= 0 && *id < size_ ? std::optional(*id) : std::nullopt;
  }

  /// Finds which special tokens are added to a text.
  void read_template() {
    const Value& post = member(json_, "post_processor");
    const Value::List& processors = member(post, "processors").is_null() ? Value::List{post} : list(post, "processors");
    const auto token = [](const Value& part) { return text(member(part, "SpecialToken"), "id"); };
    const std::string bos = special_text("bos"), eos = special_text("eos"), sep = special_text("sep");
    for (const Value& processor : processors) {
      if (text(processor, "type") != "TemplateProcessing") continue;
      const Value::List &single = list(processor, "single"), &pair = list(processor, "pair");
      std::string first, last;
      if (single.size() > 1) first = token(single.front()), last = token(single.back());
      if (!first.empty()) added_["bos"] = first == bos;
      if (!last.empty()) added_["eos"] = last == eos;
      // Between the two texts of a pair.
      std::vector<std::string> between;
      for (std::size_t i = 1; i + 1 < pair.size(); ++i) {
        const std::string id = token(pair[i]);
        const bool texts = token(pair[i - 1]).empty() || !between.empty();
        if (!id.empty() && texts) between.push_back(id);
      }
      if (!between.empty()) {
        const auto separates = [&](const std::string& id) { return !id.empty() && (id == sep || id == eos); };
        added_["sep"] = (last.empty() && separates(between[0])) || (between.size() == 2 && separates(between[1]));
      }
    }
    for (const char* const name : {"bos", "eos", "sep"}) {
      const bool* const set = member(settings_, "add_" + std::string(name) + "_token").as_bool();
      if (set != nullptr) added_[name] = *set;
    }
    if (size_ == 49152) added_["bos"] = false;  // small Granite models and SmolLM
  }

  const Value json_, settings_;
  const Value& config_;
  const Value& model_;
  std::int64_t size_;
  std::string chat_;
  Value::List tokens_, types_, scores_;
  std::map<std::string, bool> added_;
};

// ---- tensors

/// transformers rotates the first half of a head's rows with the second, llama.cpp neighbours: rows of [heads, 2, half]
/// become [heads, half, 2]. Elements of a bias move in the same way.
stele::Snapshot interleave(stele::Snapshot model, const std::string& pattern, std::int64_t heads,
                           const Config& config) {
  const auto extent = [](std::int64_t n) { return static_cast<stele::Extent>(n); };
  const stele::Extent half = extent(config.head_size / 2), width = extent(config.width);
  const stele::Extent rows[] = {extent(heads), 2, half, width}, matrix[] = {extent(heads * config.head_size), width};
  const std::size_t axes[] = {0, 2, 1, 3};
  const auto permuted = [&](std::string_view of, std::size_t rank) {  // of a matrix without its columns, for a bias
    model = stele::reshape(model, of, std::span(rows, rank + 2)).value();
    model = stele::transpose(model, of, std::span(axes, rank + 2)).value();
    model = stele::reshape(model, of, std::span(matrix, rank)).value();
  };
  permuted(pattern + ".weight", 2);
  for (std::size_t i = 0; i < model.leaf_count(); ++i) {
    if (!stele::matches(pattern + ".bias", model.leaf(i).path())) continue;
    permuted(pattern + ".bias", 1);
    break;
  }
  return model;
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
  // Buffers of old files, which llama.cpp computes.
  model = stele::filter(model, {.exclude = {"*.rotary_emb.inv_freq", "*.attention.bias", "*.attention.masked_bias"}})
              .value();
  model = interleave(model, "blk.*.attn_q", config.heads, config);
  model = interleave(model, "blk.*.attn_k", config.key_heads, config);
  std::vector<stele::PrecisionRule> vectors;
  for (std::size_t i = 0; i < model.leaf_count(); ++i) {
    const stele::LeafView leaf = model.leaf(i);
    const std::string path = leaf.path();
    if (!path.starts_with("blk.") && !path.starts_with("token_embd.") && !path.starts_with("output"))
      throw std::runtime_error("a tensor that a Llama does not have: " + path);
    if (leaf.shape().size() < 2) vectors.push_back({path, stele::DType::f32});
  }
  model = stele::with_precision(model, vectors);
  if (config.rope_type == "llama3") {
    rope.rope_freqs.weight = rope_factors(config);
    const stele::Snapshot parts[] = {model, stele::snapshot_of(rope).value()};
    model = stele::merge(parts).value();
  }

  Value::Map pairs;
  pairs.emplace_back("general.architecture", Value("llama"));
  pairs.emplace_back("general.type", Value("model"));
  config.add_to(pairs);
  Tokenizer(folder, json, config.vocabulary).add_to(pairs);
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
    const stele::Report report = stele::save(model, out, {.format = stele::GgufFormat()}).value();
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
