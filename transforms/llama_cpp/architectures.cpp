// The table of architectures. Names and keys are those of llama.cpp's conversion/*.py and
// gguf-py/gguf/tensor_mapping.py (2026); what is computed follows its src/models/*.cpp.
#include "architectures.hpp"

#include <algorithm>

namespace stele::inline v0::detail::llama_cpp {
namespace {

using Change = TensorRow::Change;
using Kind = KeyRow::Kind;

// ---- tensors

constexpr TensorRow ends[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output", Change::none, false, true},
    {"model.layers.*.input_layernorm", "blk.*.attn_norm"},
};
constexpr TensorRow attention[] = {
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q", Change::queries, true},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k", Change::keys, true},
    {"model.layers.*.self_attn.v_proj", "blk.*.attn_v", Change::none, true},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output", Change::none, true},
};
constexpr TensorRow attention_without_bias[] = {
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q", Change::queries},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k", Change::keys},
    {"model.layers.*.self_attn.v_proj", "blk.*.attn_v"},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
};
constexpr TensorRow norm_before_mlp[] = {{"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"}};
constexpr TensorRow norms_around_mlp[] = {
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"},
    {"model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm"},
};
constexpr TensorRow mlp[] = {
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},
    {"model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
};
constexpr TensorRow mlp_with_norms_of_heads[] = {
    {"model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm"}, {"model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm"},
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},       {"model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
};
constexpr TensorRow mlp_of_llama[] = {
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate", Change::none, true},
    {"model.layers.*.mlp.up_proj", "blk.*.ffn_up", Change::none, true},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down", Change::none, true},
};
constexpr TensorRow experts[] = {
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.block_sparse_moe.gate", "blk.*.ffn_gate_inp"},
    {"model.layers.*.block_sparse_moe.experts.*.w1", "blk.*.ffn_gate_exps"},
    {"model.layers.*.block_sparse_moe.experts.*.w2", "blk.*.ffn_down_exps"},
    {"model.layers.*.block_sparse_moe.experts.*.w3", "blk.*.ffn_up_exps"},
};
constexpr TensorRow fused[] = {
    {"model.layers.*.self_attn.qkv_proj", "blk.*.attn_qkv"},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
};
constexpr TensorRow of_gpt2[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm", Change::none, true},
    {"lm_head", "output", Change::none, false, true},
    {"h.*.ln_1", "blk.*.attn_norm", Change::none, true},
    {"h.*.attn.c_attn", "blk.*.attn_qkv", Change::transposed, true},
    {"h.*.attn.c_proj", "blk.*.attn_output", Change::transposed, true},
    {"h.*.ln_2", "blk.*.ffn_norm", Change::none, true},
    {"h.*.mlp.c_fc", "blk.*.ffn_up", Change::transposed, true},
    {"h.*.mlp.c_proj", "blk.*.ffn_down", Change::transposed, true},
};

// ---- hyperparameters

constexpr KeyRow decoder[] = {
    {"block_count", {"num_hidden_layers"}},
    {"embedding_length", {"hidden_size"}},
    {"feed_forward_length", {"intermediate_size"}},
    {"attention.head_count", {"num_attention_heads"}},
    {"attention.head_count_kv", {"num_key_value_heads", "num_attention_heads"}},
    {"vocab_size", {"vocab_size"}},
};
constexpr KeyRow required[] = {
    {"context_length", {"max_position_embeddings"}},
    {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}, Kind::real},
};
constexpr KeyRow defaults_of_llama[] = {
    {"context_length", {"max_position_embeddings"}, Kind::count, 2048},
    {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}, Kind::real, 1e-6},
};
constexpr KeyRow keys_of_gpt2[] = {
    {"block_count", {"n_layer"}},
    {"context_length", {"n_positions", "n_ctx"}},
    {"embedding_length", {"n_embd"}},
    {"feed_forward_length", {"n_inner", "n_embd"}, Kind::count, KeyRow::required, 4},
    {"attention.head_count", {"n_head"}},
    {"attention.layer_norm_epsilon", {"layer_norm_epsilon"}, Kind::real, 1e-5},
    {"vocab_size", {"vocab_size"}},
};
constexpr KeyRow keys_of_mixtral[] = {
    {"expert_count", {"num_local_experts"}},
    {"expert_used_count", {"num_experts_per_tok"}},
};
constexpr KeyRow keys_of_gemma2[] = {
    {"attn_logit_softcapping", {"attn_logit_softcapping"}, Kind::real, KeyRow::left_out},
    {"final_logit_softcapping", {"final_logit_softcapping"}, Kind::real, KeyRow::left_out},
    {"attention.sliding_window", {"sliding_window"}},
};
constexpr KeyRow keys_of_gemma3[] = {
    {"final_logit_softcapping", {"final_logit_softcapping"}, Kind::real, KeyRow::left_out},
    {"attention.sliding_window", {"sliding_window"}},
};
constexpr KeyRow keys_of_phi3[] = {
    {"rope.scaling.original_context_length", {"original_max_position_embeddings", "max_position_embeddings"}},
    {"attention.sliding_window", {"sliding_window"}, Kind::count, 0},
};

// ---- settings

constexpr SettingRow silu[] = {{"hidden_act", "silu|swish"}};
// "gelu" is the old name: transformers computed gelu_pytorch_tanh for it.
constexpr SettingRow gelu_tanh[] = {{"hidden_act", "gelu_pytorch_tanh|gelu"},
                                    {"hidden_activation", "gelu_pytorch_tanh|gelu"},
                                    {"use_bidirectional_attention", "false"}};
constexpr SettingRow settings_of_gemma3[] = {{"attn_logit_softcapping", ""}};
constexpr SettingRow settings_of_gpt2[] = {
    {"activation_function", "gelu_new|gelu_pytorch_tanh"},
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},
};

// ---- tokens

constexpr TokenRow of_code_llama[] = {
    {32016, "prefix", 32007}, {32016, "suffix", 32008}, {32016, "middle", 32009}, {32016, "eot", 32010}};
constexpr TokenRow of_code_gemma[] = {
    {256000, "prefix", 67}, {256000, "suffix", 69}, {256000, "middle", 68}, {256000, "fsep", 70}, {256000, "eot", 107}};

constexpr Architecture all[] = {
    {.model_type = "llama",
     .name = "llama",
     .tensors = {ends, attention, mlp_of_llama},
     .keys = {decoder, defaults_of_llama},
     .settings = {silu},
     .tokens = of_code_llama,
     .interleaved = true},
    {.model_type = "mistral",
     .name = "llama",
     .tensors = {ends, attention, mlp_of_llama},
     .keys = {decoder, required},
     .settings = {silu},
     .interleaved = true},
    {.model_type = "mixtral",
     .name = "llama",
     .tensors = {ends, attention, experts},
     .keys = {decoder, required, keys_of_mixtral},
     .settings = {silu},
     .rope_base = 1e6,
     .interleaved = true},
    {.model_type = "qwen2",
     .name = "qwen2",
     .tensors = {ends, attention, norm_before_mlp, mlp},
     .keys = {decoder, required},
     .settings = {silu}},
    {.model_type = "qwen3",
     .name = "qwen3",
     .tensors = {ends, attention_without_bias, norm_before_mlp, mlp_with_norms_of_heads},
     .keys = {decoder, required},
     .settings = {silu},
     .head_size = 128},
    {.model_type = "gemma",
     .name = "gemma",
     .tensors = {ends, attention_without_bias, norm_before_mlp, mlp},
     .keys = {decoder, required},
     .settings = {gelu_tanh},
     .tokens = of_code_gemma,
     .head_size = 256,
     .tied = true,
     .norms_plus_one = true,
     .space_prefix = false},
    {.model_type = "gemma2",
     .name = "gemma2",
     .tensors = {ends, attention_without_bias, norms_around_mlp, mlp},
     .keys = {decoder, required, keys_of_gemma2},
     .settings = {gelu_tanh},
     .head_size = 256,
     .tied = true,
     .norms_plus_one = true,
     .space_prefix = false,
     .period = 2,
     .large = 46},
    {.model_type = "gemma3_text",
     .name = "gemma3",
     .tensors = {ends, attention_without_bias, norms_around_mlp, mlp_with_norms_of_heads},
     .keys = {decoder, required, keys_of_gemma3},
     .settings = {gelu_tanh, settings_of_gemma3},
     .rope = Rope::gemma3,
     .rope_base = 1e6,
     .head_size = 256,
     .norms_plus_one = true,
     .space_prefix = false,
     .period = 6,
     .large = 62},
    {.model_type = "phi3",
     .name = "phi3",
     .tensors = {ends, fused},
     .keys = {decoder, required, keys_of_phi3},
     .settings = {silu},
     .rope = Rope::phi3},
    {.model_type = "gpt2",
     .name = "gpt2",
     .tensors = {of_gpt2},
     .keys = {keys_of_gpt2},
     .settings = {settings_of_gpt2},
     .rope = Rope::none},
};

}  // namespace

std::span<const Architecture> architectures() noexcept { return all; }

const Architecture* find_architecture(std::string_view model_type) noexcept {
  const auto found =
      std::find_if(std::begin(all), std::end(all), [&](const Architecture& a) { return a.model_type == model_type; });
  return found != std::end(all) ? &*found : nullptr;
}

}  // namespace stele::inline v0::detail::llama_cpp
