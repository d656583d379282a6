// Facts about models of transformers 5.24, whose sources name the layers of the class Conv1D and the tied weights.
#include "lora_model.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "io/text.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::detail::lora {
namespace {

constexpr const char* config_name = "config.json";
constexpr const char* tie_key = "tie_word_embeddings";
constexpr std::uint64_t max_config_bytes = std::uint64_t{16} << 20;

/// The models with layers of the class Conv1D, and the names of these layers.
constexpr std::string_view conv1d_models[] = {"gpt2", "openai", "openai-gpt", "imagegpt", "decision_transformer",
                                              "clvp"};
constexpr std::string_view conv1d_layers[] = {"c_attn", "q_attn", "c_proj", "c_fc"};

struct Tie {
  std::string_view head, embedding;
};
/// Ties of _tied_weights_keys that more than one model has.
constexpr Tie ties[] = {
    {"lm_head.weight", "model.embed_tokens.weight"},
    {"lm_head.weight", "model.language_model.embed_tokens.weight"},
    {"lm_head.weight", "model.text_model.embed_tokens.weight"},
    {"lm_head.weight", "model.decoder.embed_tokens.weight"},
    {"lm_head.weight", "model.shared.weight"},
    {"lm_head.weight", "shared.weight"},
    {"lm_head.weight", "transformer.wte.weight"},
    {"lm_head.weight", "transformer.word_embeddings.weight"},
    {"lm_head.weight", "transformer.tokens_embed.weight"},
    {"lm_head.weight", "backbone.embeddings.weight"},
    {"lm_head.weight", "gpt_neox.embed_in.weight"},
    {"proj_out.weight", "model.decoder.embed_tokens.weight"},
    {"embed_out.weight", "gpt_neox_japanese.embed_in.weight"},
};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

Result<std::string> text_of(const Bundle& folder) {
  STELE_TRY_ASSIGN(const SourcePtr file, folder.open(config_name));
  return read_text(*file, max_config_bytes, "the configuration is too large");
}

/// Returns the value of a member of an object, as a part of its text; empty if there is none.
std::string_view member(std::string_view text, std::string_view wanted) {
  json::Reader in(text);
  std::string scratch;
  std::string_view key, raw;
  if (!in.begin_object()) return {};
  while (in.next_key(key, scratch)) {
    const bool found = key == wanted;
    if (!in.skip_value(&raw)) return {};
    if (found) return raw;
  }
  return {};
}

/// Returns the configuration of a model whose head is not its embedding; all other bytes stay.
std::string untied(std::string text) {
  const std::string_view own = member(text, tie_key), inner = member(member(text, "text_config"), tie_key);
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const std::string_view value : {own, inner}) {
    if (!value.empty()) places.emplace_back(static_cast<std::size_t>(value.data() - text.data()), value.size());
  }
  std::sort(places.rbegin(), places.rend());  // from the end, so that earlier positions stay valid
  for (const auto& [at, size] : places) text.replace(at, size, "false");
  if (places.empty()) text.insert(text.find('{') + 1, "\n  \"" + std::string(tie_key) + "\": false,");
  return text;
}

/// A folder with another config.json.
class WithConfig final : public Bundle {
 public:
  WithConfig(std::shared_ptr<const Bundle> folder, std::string text) : folder_(std::move(folder)) {
    const auto bytes = std::as_bytes(std::span(text));
    config_ = own_bytes(std::vector<std::byte>(bytes.begin(), bytes.end()), config_name);
  }
  Result<SourcePtr> open(std::string_view name) const override {
    return name == config_name ? Result<SourcePtr>(config_) : folder_->open(name);
  }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    return Error(Errc::unsupported, "the folder is only read").file(name);
  }
  Result<bool> contains(std::string_view name) const override { return folder_->contains(name); }
  Result<std::vector<std::string>> names() const override { return folder_->names(); }
  void remove(std::string_view /*name*/) noexcept override {}

 private:
  std::shared_ptr<const Bundle> folder_;
  SourcePtr config_;
};

bool has_config(const std::shared_ptr<const SideFiles>& beside) {
  return beside != nullptr && std::binary_search(beside->names.begin(), beside->names.end(), config_name);
}

}  // namespace

bool is_head(std::string_view tensor) {
  return std::any_of(std::begin(ties), std::end(ties), [&](const Tie& tie) { return tie.head == tensor; });
}

Result<ModelFacts> ModelFacts::of(const Snapshot& model, const LoraConfig& adapter) {
  ModelFacts facts;
  facts.model_ = adapter.transformers_model().value_or("");
  const auto& beside = model.data()->beside;
  if (!has_config(beside)) return facts;
  STELE_TRY_ASSIGN(facts.config_, text_of(*beside->folder));
  auto config = parse_json(facts.config_);
  if (!config) return std::move(config).error().file(config_name);
  // A model with its own code is not a model of transformers.
  if (facts.model_.empty() && config->find("auto_map") == nullptr) {
    facts.model_ = config->at("model_type").to<std::string>().value_or("");
  }
  facts.class_ = config->at("architectures").at(std::size_t{0}).to<std::string>().value_or("");
  for (const ValueEntry& tied : {config->at("text_config").at(tie_key), config->at(tie_key)}) {
    if (const auto flag = tied.to<bool>()) facts.tied_ = *flag;
  }
  return facts;
}

std::optional<bool> ModelFacts::conv1d(std::string_view module) const {
  const bool named = contains(conv1d_layers, module.substr(module.rfind('.') + 1));
  if (contains(conv1d_models, model_)) return named;
  // A model that combines two models, such as an encoder and a decoder, may contain one of these.
  return model_.empty() || named ? std::nullopt : std::optional(false);
}

bool ModelFacts::has_biased(const Items& items, const ItemIndex& index, bool conv1d) {
  constexpr std::string_view ending = ".weight";
  return std::any_of(items.list.begin(), items.list.end(), [&](const Item& item) {
    if (!item.is_tensor() || !item.path.ends_with(ending) || item.leaf().shape().size() != 2) return false;
    const auto bias = index.find(item.path.substr(0, item.path.size() - ending.size()) + ".bias");
    if (!bias || !items.list[*bias].is_tensor()) return false;
    const auto shape = item.leaf().shape(), length = items.list[*bias].leaf().shape();
    return length.size() == 1 && shape[0] != shape[1] && length[0] == shape[conv1d ? 1 : 0];
  });
}

std::optional<std::size_t> ModelFacts::source_of(std::string_view head, const ItemIndex& index) const {
  std::optional<std::size_t> source;
  if (tied_ != true) return source;
  for (const Tie& tie : ties) {
    const auto found = tie.head == head ? index.find(tie.embedding) : std::nullopt;
    if (!found) continue;
    if (source) return std::nullopt;
    source = found;
  }
  return source;
}

Result<std::optional<std::string>> ModelFacts::absent_head_of(
    std::string_view embedding, const std::function<bool(std::string_view)>& present) const {
  std::vector<std::string_view> heads;
  for (const Tie& tie : ties) {
    if (tie.embedding != embedding) continue;
    if (present(tie.head)) return std::optional<std::string>();
    heads.push_back(tie.head);
  }
  if (heads.empty() || tied_ == false) return std::optional<std::string>();
  for (const char* const headless : {"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"}) {
    if (class_.ends_with(headless)) return std::optional<std::string>();
  }
  bool has_head = false;
  for (const char* const ending : {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"}) {
    has_head = has_head || class_.ends_with(ending);
  }
  // `shared` is the embedding of an encoder and a decoder, too.
  if (tied_ == true && has_head && heads.size() == 1 && !embedding.ends_with("shared.weight")) {
    return std::optional(std::string(heads.front()));
  }
  return Error(Errc::unsupported, "the adapter replaces an embedding, which may also be the head of the model")
      .path(embedding)
      .expected("a head in the model's file, or the key tie_word_embeddings and the class in its config.json")
      .hint("save the model with tie_word_embeddings=False, so that it has both tensors");
}

Result<std::shared_ptr<const SideFiles>> ModelFacts::side_files(const std::shared_ptr<const SideFiles>& beside,
                                                                std::vector<std::string>& notes) const {
  if (!untied_ || tied_ == false || !has_config(beside)) return beside;
  notes.emplace_back("config.json: tie_word_embeddings is now false");
  auto files = std::make_shared<SideFiles>(*beside);
  files->folder = std::make_shared<WithConfig>(beside->folder, untied(config_));
  return std::shared_ptr<const SideFiles>(std::move(files));
}

}  // namespace stele::inline v0::detail::lora
