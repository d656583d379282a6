// Quantizes with the mixtures of dtypes that llama.cpp's llama-quantize defines (llama-quant.cpp, without an importance
// matrix).
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "dtypes.hpp"
#include "encodings/gguf/types.hpp"
#include "passes/quantize.hpp"
#include "snapshot/data.hpp"
#include "stele/recorders/gguf.hpp"

namespace stele::inline v0 {
namespace {

namespace gguf = detail::gguf;

enum class Size : std::uint8_t { plain, small, medium, large };

struct Mixture {
  std::string_view name;
  std::uint32_t file_type;
  DType base;
  Size size = Size::plain;
};

constexpr std::array<Mixture, 21> mixtures = {{
    {"F32", 0, DType::f32},
    {"F16", 1, DType::f16},
    {"BF16", 32, DType::bf16},
    {"Q4_0", 2, DType::q4_0},
    {"Q4_1", 3, DType::q4_1},
    {"Q8_0", 7, DType::q8_0},
    {"Q5_0", 8, DType::q5_0},
    {"Q5_1", 9, DType::q5_1},
    {"Q2_K", 10, DType::q2_k},
    {"Q3_K_S", 11, DType::q3_k, Size::small},
    {"Q3_K_M", 12, DType::q3_k, Size::medium},
    {"Q3_K_L", 13, DType::q3_k, Size::large},
    {"Q4_K_S", 14, DType::q4_k, Size::small},
    {"Q4_K_M", 15, DType::q4_k, Size::medium},
    {"Q5_K_S", 16, DType::q5_k, Size::small},
    {"Q5_K_M", 17, DType::q5_k, Size::medium},
    {"Q6_K", 18, DType::q6_k},
    {"IQ4_NL", 25, DType::iq4_nl},
    {"TQ1_0", 36, DType::tq1_0},
    {"TQ2_0", 37, DType::tq2_0},
    {"MXFP4_MOE", 38, DType::mxfp4},
}};

/// Facts about a model on which the mixtures depend.
struct Model {
  std::uint64_t layers = 0;
  std::uint64_t queries_per_key = 1;  // attention heads for each key head
  bool eight_experts = false;
  bool separate_output = false;  // true if the output matrix is not the embedding

  explicit Model(const Snapshot& snapshot) {
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const std::string path = snapshot.leaf(i).path();
      if (path == "output.weight") separate_output = true;
      if (const auto layer = layer_of(path)) layers = std::max(layers, *layer + 1);
    }
    const auto architecture = snapshot.metadata().find(std::string(gguf::architecture_key));
    if (architecture == snapshot.metadata().end()) return;
    const auto number = [&](const char* key) -> std::uint64_t {
      const Value* const value = snapshot.properties().find(architecture->second + key);
      return value != nullptr && value->as_i64() != nullptr && *value->as_i64() > 0
                 ? static_cast<std::uint64_t>(*value->as_i64())
                 : 0;
    };
    if (const std::uint64_t keys = number(".attention.head_count_kv"); keys != 0) {
      queries_per_key = number(".attention.head_count") / keys;
    }
    eight_experts = number(".expert_count") == 8;
  }

  /// Returns N of `blk.N.…`.
  static std::optional<std::uint64_t> layer_of(std::string_view path) {
    if (!path.starts_with("blk.")) return std::nullopt;
    std::uint64_t layer = 0;
    const auto [end, error] = std::from_chars(path.data() + 4, path.data() + path.size(), layer);
    if (error != std::errc() || end == path.data() + path.size() || *end != '.' || layer > 0xffff) return std::nullopt;
    return layer;
  }
};

/// Returns true for the first and the last eighth of the layers, and for every third layer between them.
bool more_bits(std::uint64_t layer, std::uint64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

DType of_values(const Mixture& mixture, const Model& model, std::uint64_t layer) {
  const DType base = mixture.base;
  const Size size = mixture.size;
  DType dtype = base;
  if (base == DType::q2_k) {
    dtype = model.queries_per_key >= 4 ? DType::q4_k : DType::q3_k;
  } else if (base == DType::q3_k && size != Size::small) {
    dtype = size == Size::large || layer < 2 ? DType::q5_k : DType::q4_k;
  } else if (base == DType::iq4_nl && model.queries_per_key >= 4) {
    dtype = DType::q5_k;
  } else if (size == Size::medium && more_bits(layer, model.layers)) {
    dtype = DType::q6_k;
  } else if (base == DType::q4_k && size == Size::small && layer < 4) {
    dtype = DType::q5_k;
  }
  // In models like Llama 70B, these matrices have an eighth of the size of the other matrices.
  const bool small = model.layers == 80 && model.queries_per_key > 1;
  if (small && (dtype == DType::q3_k || dtype == DType::q4_k)) dtype = DType::q5_k;
  return model.eight_experts ? DType::q8_0 : dtype;
}

DType of_down(const Mixture& mixture, const Model& model, std::uint64_t layer) {
  const DType base = mixture.base;
  const Size size = mixture.size;
  const bool first = layer < model.layers / 8;
  if (base == DType::q2_k) return DType::q3_k;
  if (base == DType::q3_k && size != Size::small) {
    return size == Size::large || layer < model.layers / 16 ? DType::q5_k : DType::q4_k;
  }
  if (size == Size::medium && more_bits(layer, model.layers)) return DType::q6_k;
  if (first && (base == DType::iq4_nl || (base == DType::q4_k && size == Size::small))) return DType::q5_k;
  return base;
}

DType of_attention_output(const Mixture& mixture, const Model& model) {
  const DType base = mixture.base;
  const Size size = mixture.size;
  if (model.eight_experts) {
    const bool raised = base == DType::q2_k || base == DType::q4_k || base == DType::iq4_nl ||
                        (base == DType::q3_k && size != Size::large);
    return raised ? DType::q5_k : base;
  }
  if (base == DType::q2_k) return DType::q3_k;
  if (base == DType::q3_k && size != Size::small) return size == Size::large ? DType::q5_k : DType::q4_k;
  return base;
}

/// Returns the dtype for a matrix. Ignores the length of its rows, except for the output matrix.
DType choose(const Mixture& mixture, const Model& model, std::string_view path, std::span<const Extent> shape) {
  const DType base = mixture.base;
  if (!is_block(base)) return base;
  const auto has = [&](std::string_view part) { return path.find(part) != path.npos; };
  const bool embedding = path == "token_embd.weight";
  if (path == "output.weight" || (!model.separate_output && embedding)) {
    const bool simple = base == DType::q8_0 || base == DType::mxfp4 || shape.back() % block_size(base).elements != 0;
    return simple ? DType::q8_0 : DType::q6_k;
  }
  if (base == DType::mxfp4) return shape.size() > 2 && shape[0] > 1 ? base : DType::q8_0;
  if (embedding && (base == DType::tq1_0 || base == DType::tq2_0)) return DType::q4_k;
  const std::uint64_t layer = Model::layer_of(path).value_or(0);
  if (has("attn_v.weight") || has("attn_qkv.weight") || has("attn_kv_b.weight"))
    return of_values(mixture, model, layer);
  if (has("attn_k.weight")) return model.eight_experts ? DType::q8_0 : base;
  if (has("attn_output.weight")) return of_attention_output(mixture, model);
  if (has("ffn_down")) return of_down(mixture, model, layer);
  return base;
}

/// Returns true if a tensor has two or more rows, the condition for a matrix in ggml.
bool is_matrix(std::span<const Extent> shape) {
  return shape.size() >= 2 && std::any_of(shape.begin(), shape.end() - 1, [](Extent extent) { return extent > 1; });
}

/// Returns true for matrices that llama-quantize changes.
bool is_changed(std::string_view path) {
  if (!path.ends_with("weight")) return false;
  constexpr std::string_view kept[] = {"_norm.weight",
                                       "ffn_gate_inp.weight",
                                       "altup",
                                       "laurel",
                                       "per_layer_model_proj",
                                       "position_embd.weight",
                                       "token_types.weight",
                                       "ssm_conv1d",
                                       "shortconv.conv.weight",
                                       "indexer.k_proj.weight",
                                       "indexer.q_proj.weight",
                                       "time_mix_first.weight",
                                       "time_mix_w0.weight",
                                       "time_mix_w1.weight",
                                       "time_mix_w2.weight",
                                       "time_mix_v0.weight",
                                       "time_mix_v1.weight",
                                       "time_mix_v2.weight",
                                       "time_mix_a0.weight",
                                       "time_mix_a1.weight",
                                       "time_mix_a2.weight",
                                       "time_mix_g1.weight",
                                       "time_mix_g2.weight",
                                       "time_mix_decay_w1.weight",
                                       "time_mix_decay_w2.weight",
                                       "time_mix_lerp_fused.weight",
                                       "attn_rel_b.weight"};
  return std::none_of(std::begin(kept), std::end(kept),
                      [&](std::string_view part) { return path.find(part) != path.npos; });
}

}  // namespace

Result<Snapshot> quantize_gguf(const Snapshot& snapshot, std::string_view mixture, Report* report) {
  return detail::guarded([&]() -> Result<Snapshot> {
    const auto found =
        std::find_if(mixtures.begin(), mixtures.end(), [&](const Mixture& m) { return m.name == mixture; });
    if (found == mixtures.end()) {
      std::string names;
      for (const Mixture& m : mixtures) names += (names.empty() ? "" : ", ") + std::string(m.name);
      return Error(Errc::invalid_argument, "no mixture of dtypes has this name").expected(names).found(mixture);
    }
    const Model model(snapshot);
    const auto dtype = [&](const LeafView& leaf) {
      const std::string path = leaf.path();
      if (!is_matrix(leaf.shape())) return detail::Choice{};
      if (is_changed(path)) return detail::Choice{choose(*found, model, path, leaf.shape())};
      if (leaf.dtype() == found->base) return detail::Choice{};
      return detail::Choice{DType::none,
                            "not " + std::string(found->name) + ": llama.cpp keeps this tensor's precision"};
    };
    STELE_TRY_ASSIGN(Snapshot quantized, detail::quantize_as(snapshot, dtype, report));
    auto data = detail::derived_data(quantized);
    detail::Properties properties;
    if (data->properties != nullptr) properties = *data->properties;
    if (properties.values.as_map() == nullptr) properties.values = Value(Value::Map());
    Value::Map& map = *properties.values.as_map();
    std::erase_if(map, [](const auto& pair) { return pair.first == gguf::file_type_key; });
    map.emplace_back(gguf::file_type_key, Value(std::int64_t{found->file_type}));
    properties.types.erase(std::string(gguf::file_type_key));
    if (properties.values.find(gguf::quantization_version_key) == nullptr) {
      map.emplace_back(gguf::quantization_version_key, Value(std::int64_t{gguf::quantization_version}));
    }
    properties.types[std::string(gguf::dtypes_key)] = gguf::dtypes_of(quantized);
    data->properties = std::make_shared<const detail::Properties>(std::move(properties));
    return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  });
}

}  // namespace stele::inline v0
