// The tokenizer: files of transformers and SentencePiece -> the key-value pairs of llama.cpp.
#include <algorithm>
#include <set>

#include "encodings/protobuf/fields.hpp"
#include "io/cursor.hpp"
#include "parts.hpp"

namespace stele::inline v0::detail::llama_cpp {
namespace {

/// Types of tokens in llama.cpp and in SentencePiece.
enum TokenType : std::int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// A regular expression that cuts text into words, and llama.cpp's name of it.
struct Words {
  std::string_view regex;
  std::string_view name;
  std::string_view with_merges = name;  // the name if a word that is a token is also merged from its parts
};
constexpr Words words[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe", "dbrx"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "gpt-4o"},
};

Error other_tokenizer(std::string_view what, const Value& found) {
  return not_for_llama_cpp("tokenizer.json", what, shown(found));
}

/// Returns the name of llama.cpp's way to cut text into words. Errors: unsupported.
Result<std::string> words_of(const Value& tokenizer) {
  const Value& first = member(tokenizer, "pre_tokenizer");
  const Value::List parts = text(first, "type") == "Sequence" ? list(first, "pretokenizers") : Value::List{first};
  const auto is_bytes = [&](std::size_t i, bool regex) {
    return i + 1 == parts.size() && text(parts[i], "type") == "ByteLevel" &&
           flag(parts[i], "use_regex", true) == regex && !flag(parts[i], "add_prefix_space");
  };
  if (is_bytes(0, true)) return std::string("gpt-2");
  if (parts.size() == 2 && text(parts[0], "type") == "Digits" && flag(parts[0], "individual_digits") &&
      is_bytes(1, true))
    return std::string("smollm");
  if (parts.size() == 2 && is_bytes(1, false)) {
    const std::string_view regex = text(member(parts[0], "pattern"), "Regex");
    const auto found =
        std::find_if(std::begin(words), std::end(words), [&](const Words& w) { return w.regex == regex; });
    const bool merged = !flag(member(tokenizer, "model"), "ignore_merges");
    if (found != std::end(words)) return std::string(merged ? found->with_merges : found->name);
  }
  return other_tokenizer("a pre_tokenizer that llama.cpp has", first);
}

/// Tokens that some models mark as ordinary, although they are control tokens.
bool looks_special(std::string_view token) {
  const auto within = [&](std::string_view begin, std::string_view end) {
    return token.size() >= begin.size() + end.size() && token.starts_with(begin) && token.ends_with(end);
  };
  return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" || within("<|", "|>") ||
         within("<｜", "｜>") || within("<unused", ">");
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

class Tokenizer {
 public:
  Tokenizer(const Architecture& architecture, const Value& config, std::int64_t vocabulary, const Bundle& folder,
            Report& rows)
      : is_(architecture), config_(config), size_(vocabulary), folder_(folder), rows_(rows) {}

  Status run(Value::Map& pairs) {
    STELE_TRY_ASSIGN(json_, json_of(folder_, "tokenizer.json"));
    STELE_TRY_ASSIGN(settings_, json_of(folder_, "tokenizer_config.json"));
    STELE_TRY_ASSIGN(const auto pieces, folder_.contains("tokenizer.model"));
    const Value& model = member(json_, "model");
    // SentencePiece's tokenizers spell unknown characters in bytes, <0x00> to <0xFF>; GPT-2's have an alphabet for
    // them.
    const bool sentencepiece = pieces || flag(model, "byte_fallback");
    if (!pieces && json_.is_null()) {
      return Error(Errc::missing, "the folder has no tokenizer")
          .path("tokenizer.json")
          .expected("tokenizer.json or tokenizer.model");
    }
    if (!pieces && (text(model, "type") != "BPE" || member(model, "vocab").as_map() == nullptr))
      return other_tokenizer("a model of the type BPE", member(model, "type"));
    const auto count = static_cast<std::size_t>(size_);
    for (std::size_t i = 0; i < count; ++i) tokens_.emplace_back("[PAD" + std::to_string(i) + "]");
    types_.assign(count, Value(std::int64_t{unused}));
    if (pieces) {
      scores_.assign(count, f32(-10000));
      STELE_TRY(read_pieces());
    } else {
      STELE_TRY(read_words(sentencepiece));
    }
    STELE_TRY(add_added(pieces, sentencepiece));
    if (sentencepiece && !pieces) STELE_TRY(add_scores(*member(model, "vocab").as_map()));

    const auto add = [&](const std::string& key, Value value) {
      pairs.emplace_back("tokenizer." + key, std::move(value));
    };
    if (const auto space = space_prefix(sentencepiece)) add("ggml.add_space_prefix", Value(*space));
    std::string pre = "default";
    if (!sentencepiece) {
      STELE_TRY(check_normalizer());
      STELE_TRY_ASSIGN(pre, words_of(json_));
    }
    add("ggml.model", Value(sentencepiece ? "llama" : "gpt2"));
    add("ggml.pre", Value(pre));
    add("ggml.tokens", Value(std::move(tokens_)));
    if (sentencepiece) add("ggml.scores", Value(std::move(scores_)));
    add("ggml.token_type", Value(std::move(types_)));
    if (!sentencepiece) {
      STELE_TRY_ASSIGN(Value::List merges, merges_of(true));
      add("ggml.merges", Value(std::move(merges)));
    }
    read_specials();
    for (const auto& [name, key] : {std::pair("bos", "bos"),
                                    {"eos", "eos"},
                                    {"unk", "unknown"},
                                    {"sep", "seperator"},
                                    {"pad", "padding"},
                                    {"cls", "cls"},
                                    {"mask", "mask"},
                                    {"eot", "eot"}}) {
      if (const auto id = special(name)) add("ggml." + std::string(key) + "_token_id", Value(*id));
    }
    for (const auto& [name, added] : added_) add("ggml.add_" + name + "_token", Value(added));
    STELE_TRY(add_templates(add));
    for (const TokenRow& row : is_.tokens) {
      if (row.vocabulary == size_) add("ggml." + std::string(row.key) + "_token_id", Value(row.id));
    }
    return {};
  }

 private:
  // ---- tokens

  Status put(const std::int64_t* id, std::string_view token, std::int64_t type) {
    if (id == nullptr || *id < 0) return other_tokenizer("tokens with ids", Value(token));
    if (*id >= size_) {  // transformers has no row of the embedding for it
      rows_.add(Report::What::unused, token, "a token whose id is not below vocab_size");
      return {};
    }
    tokens_[static_cast<std::size_t>(*id)] = Value(token);
    types_[static_cast<std::size_t>(*id)] = Value(type);
    return {};
  }

  /// Reads tokenizer.model: ModelProto of SentencePiece.
  Status read_pieces() {
    enum : std::uint32_t { pieces = 1, trainer = 2, normalizer = 3 };
    STELE_TRY_ASSIGN(const SourcePtr file, folder_.open("tokenizer.model"));
    Cursor in(file);
    std::int64_t id = 0;
    STELE_TRY(protobuf::each(protobuf::Fields(in, file->size()), [&](protobuf::Fields& field) -> Status {
      if (!field.has_length()) return {};
      if (field.field() == trainer) return read_trainer(field.message());
      if (field.field() == normalizer) return read_normalizer(field.message());
      return field.field() == pieces ? read_piece(field.message(), id++) : Status();
    }));
    constexpr std::uint64_t unigram = 1, bpe = 2;
    if (kind_ == bpe) return {};
    return not_for_llama_cpp("tokenizer.model", "a model of the type BPE", kind_ == unigram ? "unigram" : "another");
  }
  Status read_piece(protobuf::Fields fields, std::int64_t id) {
    std::string token;
    std::int64_t type = normal;
    std::vector<float> score;
    STELE_TRY(protobuf::each(fields, [&](protobuf::Fields& field) -> Status {
      if (field.field() == 1) return field.text(token);
      if (field.field() == 2) return field.floats(score);
      if (field.field() == 3 && field.is_number()) type = static_cast<std::int64_t>(field.number());
      return {};
    }));
    if (id < size_ && !score.empty()) scores_[static_cast<std::size_t>(id)] = f32(score.back());
    if (id < size_ && score.empty()) scores_[static_cast<std::size_t>(id)] = f32(0);
    return put(&id, token, type);
  }
  Status read_trainer(protobuf::Fields fields) {
    return protobuf::each(fields, [&](protobuf::Fields& field) -> Status {
      if (field.field() == 3 && field.is_number()) kind_ = field.number();
      return {};
    });
  }
  Status read_normalizer(protobuf::Fields fields) {
    return protobuf::each(fields, [&](protobuf::Fields& field) -> Status {
      if (field.field() == 3 && field.is_number()) dummy_prefix_ = field.number() != 0;
      return {};
    });
  }

  /// Reads the model of tokenizer.json.
  Status read_words(bool sentencepiece) {
    const Value::Map& vocabulary = *member(member(json_, "model"), "vocab").as_map();
    for (const auto& [token, id] : vocabulary) {
      const bool in_bytes = sentencepiece && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      STELE_TRY(put(id.as_i64(), token, in_bytes ? byte : normal));
    }
    return {};
  }

  /// llama.cpp merges the pair with the highest score: the first in the list of merges. (Its own converter writes -1000
  /// for every token if there is no tokenizer.model, with which it would merge from left to right.)
  Status add_scores(const Value::Map& vocabulary) {
    scores_.assign(static_cast<std::size_t>(size_), f32(-1000));
    std::map<std::string_view, std::size_t> ids;
    for (const auto& [token, id] : vocabulary) {
      if (*id.as_i64() < size_) ids.emplace(token, static_cast<std::size_t>(*id.as_i64()));
    }
    STELE_TRY_ASSIGN(const Value::List merged, merges_of(false));
    for (std::size_t i = merged.size(); i-- > 0;) {  // the first one of a token is the last one here
      const auto id = ids.find(*merged[i].as_string());
      if (id != ids.end()) scores_[id->second] = f32(-static_cast<double>(i));
    }
    // Single characters come after all pairs.
    const double last = -static_cast<double>(merged.size());
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (types_[i] == Value(std::int64_t{normal}) && scores_[i] == f32(-1000)) scores_[i] = f32(last);
    }
    return {};
  }

  /// Returns the pairs of pieces that are merged, with a space between them, or joined. Errors: unsupported.
  Result<Value::List> merges_of(bool spaced) const {
    Value::List out;
    for (const Value& merge : list(member(json_, "model"), "merges")) {
      std::string one, other;
      const Value::List* const parts = merge.as_list();
      const std::string* const both = merge.as_string();
      if (parts != nullptr && parts->size() == 2 && (*parts)[0].as_string() != nullptr &&
          (*parts)[1].as_string() != nullptr) {
        one = *(*parts)[0].as_string(), other = *(*parts)[1].as_string();
      } else if (both != nullptr && both->find(' ') != both->npos) {  // older files: one string
        one = both->substr(0, both->find(' ')), other = both->substr(both->find(' ') + 1);
      } else {
        return other_tokenizer("merges of two tokens", merge);
      }
      // The space between the pieces must be the only one.
      if (spaced) one = replaced(one, " ", "Ġ"), other = replaced(other, " ", "Ġ");
      out.emplace_back(one.append(spaced ? " " : "").append(other));
    }
    return out;
  }

  /// Adds the tokens that are not in the vocabulary, or replaces tokens of it.
  Status add_added(bool pieces, bool sentencepiece) {
    STELE_TRY_ASSIGN(const Value named, json_of(folder_, "added_tokens.json"));
    std::map<std::int64_t, std::pair<std::string, bool>> all;  // content, special
    if (pieces && named.as_map() != nullptr) {
      for (const auto& [token, id] : *named.as_map()) {
        if (id.as_i64() != nullptr) all[*id.as_i64()] = {token, false};
      }
    }
    const Value& decoder = member(settings_, "added_tokens_decoder");
    if (pieces && decoder.as_map() != nullptr) {
      for (const auto& [id, token] : *decoder.as_map()) {
        all[std::strtoll(id.c_str(), nullptr, 10)] = {std::string(text(token, "content")), flag(token, "special")};
      }
    }
    for (const Value& token : list(json_, "added_tokens")) {
      const std::int64_t* const id = member(token, "id").as_i64();
      if (id == nullptr) return other_tokenizer("tokens with ids", token);
      all[*id] = {std::string(text(token, "content")), flag(token, "special")};
    }
    for (const auto& [id, token] : all) {
      const auto& [content, marked] = token;
      const bool special = marked || ((pieces || !sentencepiece) && looks_special(content));
      // Tokens of SentencePiece's model in tokenizer.json keep their types unless they are special.
      const bool known = sentencepiece && !pieces && id >= 0 && id < size_ &&
                         types_[static_cast<std::size_t>(id)] != Value(std::int64_t{unused});
      if (known && !special) continue;
      if (pieces && id >= 0 && id < size_) {
        const auto i = static_cast<std::size_t>(id);
        const bool is_unknown = types_[i] == Value(std::int64_t{unknown}) && tokens_[i] == Value(content);
        if (!is_unknown || special) scores_[i] = f32(-1000);
      }
      const bool spelled = special || (sentencepiece && !pieces);
      STELE_TRY(put(&id, spelled ? content : replaced(content, "▁", " "), special ? control : user_defined));
    }
    return {};
  }

  // ---- settings

  /// Returns false if texts do not begin with a space, which is llama.cpp's default for SentencePiece.
  std::optional<bool> space_prefix(bool sentencepiece) const {
    if (sentencepiece && !is_.space_prefix) return false;
    if (const bool* const set = member(settings_, "add_prefix_space").as_bool()) return *set;
    if (!sentencepiece) return std::nullopt;
    const Value& words_at = member(json_, "pre_tokenizer");
    const bool never = text(words_at, "type") == "Metaspace" &&
                       (text(words_at, "prepend_scheme") == "never" || !flag(words_at, "add_prefix_space", true));
    return never || !dummy_prefix_ ? std::optional(false) : std::nullopt;
  }

  Status check_normalizer() const {
    const Value& normalizer = member(json_, "normalizer");
    const std::string_view type = text(normalizer, "type");
    const bool none = type == "Sequence" && list(normalizer, "normalizers").empty();
    if (normalizer.is_null() || type == "NFC" || none) return {};
    return other_tokenizer("no normalizer, or NFC", normalizer);
  }

  std::string special_text(const std::string& name) const {
    const auto own = texts_.find(name);
    if (own != texts_.end()) return own->second;
    const Value& token = member(settings_, name + "_token");
    return std::string(token.as_map() != nullptr ? text(token, "content") : text(settings_, name + "_token"));
  }

  /// Returns the id of a special token: by its text, or as the model's configuration has it.
  std::optional<std::int64_t> special(const std::string& name) const {
    const std::string content = special_text(name);
    for (const Value& token : list(json_, "added_tokens")) {
      const std::int64_t* const id = member(token, "id").as_i64();
      if (!content.empty() && text(token, "content") == content && id != nullptr && *id < size_) return *id;
    }
    const std::int64_t* const id = member(config_, name + "_token_id").as_i64();
    return id != nullptr && *id >= 0 && *id < size_ ? std::optional(*id) : std::nullopt;
  }

  /// Finds which special tokens are added to a text.
  void read_specials() {
    for (const auto& [name, other] : {std::pair("bos", "cls"), {"eos", "sep"}}) {
      if (!json_.is_null() && special_text(name).empty()) texts_[name] = special_text(other);
    }
    const Value& post = member(json_, "post_processor");
    const Value::List processors = member(post, "processors").is_null() ? Value::List{post} : list(post, "processors");
    for (const Value& processor : processors) {
      if (text(processor, "type") == "ByteLevel") {
        added_.emplace("bos", false);
        added_.emplace("eos", false);
      }
      if (text(processor, "type") == "TemplateProcessing") read_template(processor);
    }
    for (const char* const name : {"bos", "eos", "sep"}) {
      const bool* const set = member(settings_, "add_" + std::string(name) + "_token").as_bool();
      if (set != nullptr) added_.emplace(name, *set);
    }
    if (is_.name == "llama" && size_ == 49152) added_["bos"] = false;  // small Granite models and SmolLM
  }

  void read_template(const Value& processor) {
    const auto token = [](const Value& part) { return std::string(text(member(part, "SpecialToken"), "id")); };
    const Value::List &single = list(processor, "single"), &pair = list(processor, "pair");
    std::string first, last;
    if (single.size() > 1) first = token(single.front()), last = token(single.back());
    if (!first.empty()) {
      if (special_text("bos").empty()) texts_["bos"] = first;
      added_["bos"] = first == special_text("bos") || first == special_text("cls");
    }
    if (!last.empty()) {
      if (const std::string eos = special_text("eos"); !eos.empty() && last != eos) texts_["eot"] = eos;
      texts_["eos"] = last;
      added_["eos"] = true;
    }
    // Between the two texts of a pair.
    std::vector<std::string> between;
    for (std::size_t i = 1; i + 1 < pair.size(); ++i) {
      const std::string id = token(pair[i]);
      const bool texts = token(pair[i - 1]).empty() || !between.empty();
      if (!id.empty() && texts) between.push_back(id);
    }
    if (between.empty()) return;
    const auto separates = [&](const std::string& id) {
      return !id.empty() && (id == special_text("sep") || id == special_text("eos"));
    };
    added_["sep"] = (last.empty() && separates(between[0])) || (between.size() == 2 && separates(between[1]));
  }

  /// Adds the template of chats, or several by name.
  template <class Add>
  Status add_templates(Add add) const {
    Value chat = member(settings_, "chat_template");
    if (chat.is_null()) {
      STELE_TRY_ASSIGN(auto jinja, text_of(folder_, "chat_template.jinja"));
      STELE_TRY_ASSIGN(const Value old, json_of(folder_, "chat_template.json"));
      chat = jinja ? Value(*std::move(jinja)) : member(old, "chat_template");
    }
    if (chat.as_string() != nullptr) add("chat_template", chat);
    if (chat.as_list() == nullptr) return {};
    Value::List names;
    for (const Value& named : *chat.as_list()) {
      const std::string name(text(named, "name"));
      if (name.empty() || text(named, "template").empty()) continue;
      add(name == "default" ? "chat_template" : "chat_template." + name, Value(text(named, "template")));
      if (name != "default") names.emplace_back(name);
    }
    if (!names.empty()) add("chat_templates", Value(std::move(names)));
    return {};
  }

  const Architecture& is_;
  const Value& config_;
  std::int64_t size_;
  const Bundle& folder_;
  Report& rows_;
  Value json_, settings_;
  std::uint64_t kind_ = 1;    // SentencePiece's model_type
  bool dummy_prefix_ = true;  // SentencePiece begins a text with a space
  Value::List tokens_, types_, scores_;
  std::map<std::string, std::string> texts_;  // of special tokens, where tokenizer_config.json has another or none
  std::map<std::string, bool> added_;
};

}  // namespace

Status add_tokenizer(const Architecture& architecture, const Value& config, const Sizes& sizes, const Bundle& folder,
                     Value::Map& pairs, Report& rows) {
  return Tokenizer(architecture, config, sizes.vocabulary, folder, rows).run(pairs);
}

}  // namespace stele::inline v0::detail::llama_cpp
