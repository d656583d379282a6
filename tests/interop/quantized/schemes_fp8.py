"""FP8 of DeepSeek, and gpt-oss."""
import json
import types

import torch

from schemes import BF16, F32, fill, linears, llama, save, scheme, state_of, write_config

# ---------------------------------------------------------------- 1. FP8 of DeepSeek

def fp8_quantize(tensor, name, config):
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    return Fp8Quantize(types.SimpleNamespace(quantization_config=config)).convert({name: tensor})


def fp8_decode(tensors, block=(128, 128)):
    """compressed-tensors' FP8BlockDequantizer: the only decoder here that takes blocks cut by the edge."""
    from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
    results = []
    for dtype in BF16, F32:
        converter = FP8BlockDequantizer(weight_block_size=block, dtype=dtype)
        results.append(converter._create_dequantized_weight(*tensors))
    return results


@scheme("fp8_block", hidden=128, inter=256, heads=2, kv=2)
@scheme("fp8_block_untied_2layers", hidden=128, inter=128, heads=2, kv=2, layers=2, tied=False)
@scheme("fp8_block_ue8m0", hidden=128, inter=256, heads=2, kv=2, scale_fmt="ue8m0")
@scheme("fp8_block_32x64", hidden=128, inter=192, heads=2, kv=2, block=(32, 64))
def fp8_block(folder, scale_fmt="float", block=(128, 128), **sizes):
    """transformers quantizes, writes its config, and loads the folder back on the CPU, which decodes it to bf16."""
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config
    config = FineGrainedFP8Config(weight_block_size=block, scale_fmt=scale_fmt, modules_to_not_convert=["lm_head"])
    model = llama(**sizes)
    tensors = state_of(model)
    for name, module in linears(model):
        tensors.update(fp8_quantize(module.weight.detach(), name + ".weight", config))
    write_config(folder, model.config, json.loads(config.to_json_string(use_diff=False)))
    save(folder, tensors)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=BF16)
    expected, expected_f32 = state_of(loaded), {}
    for name, _ in linears(model):
        bf16, expected_f32[name + ".weight"] = fp8_decode(
            (tensors[name + ".weight"], tensors[name + ".weight_scale_inv"]), block)
        assert torch.equal(bf16, expected[name + ".weight"]), name
    return expected, expected_f32


@scheme("fp8_block_partial")
def fp8_block_partial(folder):
    """Blocks cut by the edges, N = 200 and K = 320; transformers' quantizer skips such weights and its decoder
    takes them for other block sizes, so its formula is applied to the padded weight. config.json as DeepSeek-V3's."""
    from transformers import FineGrainedFP8Config
    from compressed_tensors.quantization.utils import maybe_pad_tensor_for_block_quant
    model = llama(hidden=320, inter=200, heads=5, kv=1)
    tensors = state_of(model)
    expected, expected_f32 = dict(tensors), {}
    for name, module in linears(model):
        weight = module.weight.detach()
        padded = maybe_pad_tensor_for_block_quant(weight, (128, 128))
        parts = fp8_quantize(padded, "weight", FineGrainedFP8Config())
        key = name + ".weight"
        tensors[key] = parts["weight"][:weight.shape[0], :weight.shape[1]].contiguous()
        tensors[key + "_scale_inv"] = parts["weight_scale_inv"]
        expected[key], expected_f32[key] = fp8_decode((tensors[key], tensors[key + "_scale_inv"]))
    write_config(folder, model.config, {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                        "weight_block_size": [128, 128]})
    save(folder, tensors)
    return expected, expected_f32


@scheme("fp8_tensor")
def fp8_tensor(folder):
    """One scale a tensor, static activations: weight_block_size null, weight_scale_inv and activation_scale scalars."""
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config
    config = FineGrainedFP8Config(weight_block_size=None, activation_scheme="static",
                                  modules_to_not_convert=["lm_head"])
    model = llama()
    tensors = state_of(model)
    for name, module in linears(model):
        parts = fp8_quantize(module.weight.detach(), name + ".weight", config)
        parts[name + ".weight_scale_inv"] = parts[name + ".weight_scale_inv"].reshape(())
        parts[name + ".activation_scale"] = torch.tensor(0.0123)
        tensors.update(parts)
    write_config(folder, model.config, json.loads(config.to_json_string(use_diff=False)))
    save(folder, tensors)
    expected = state_of(AutoModelForCausalLM.from_pretrained(folder, dtype=BF16))
    return expected, {name + ".weight": tensors[name + ".weight"].to(F32) * tensors[name + ".weight_scale_inv"]
                      for name, _ in linears(model)}


@scheme("fp8_mxfp8_bytes")
def fp8_mxfp8_bytes(folder):
    """1 x 32 blocks whose E8M0 scales are stored as U8."""
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config
    config = FineGrainedFP8Config(weight_block_size=(1, 32), scale_fmt="ue8m0", modules_to_not_convert=["lm_head"])
    model = llama(hidden=64, inter=96)
    tensors = state_of(model)
    for name, module in linears(model):
        parts = fp8_quantize(module.weight.detach(), name + ".weight", config)
        parts[name + ".weight_scale_inv"] = parts[name + ".weight_scale_inv"].view(torch.uint8)
        tensors.update(parts)
    write_config(folder, model.config, json.loads(config.to_json_string(use_diff=False)))
    save(folder, tensors)
    expected = state_of(AutoModelForCausalLM.from_pretrained(folder, dtype=BF16))
    expected_f32 = {}
    for name, _ in linears(model):
        scale = tensors[name + ".weight_scale_inv"].view(torch.float8_e8m0fnu)
        expected_f32[name + ".weight"] = fp8_decode((tensors[name + ".weight"], scale), (1, 32))[1]
    return expected, expected_f32


@scheme("fp8_experts_stack")
def fp8_experts_stack(folder):
    """A stack of experts [E, N, K] in one tensor, NAME and NAME_scale_inv [E, N/128, K/128]."""
    from transformers import FineGrainedFP8Config, Qwen3MoeConfig
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    config = FineGrainedFP8Config()
    model_config = Qwen3MoeConfig(hidden_size=128, moe_intermediate_size=128, num_hidden_layers=1, num_experts=3,
                                  num_attention_heads=2, num_key_value_heads=1, vocab_size=48,
                                  architectures=["Qwen3MoeForCausalLM"], dtype=BF16)
    generator = torch.Generator().manual_seed(7)
    tensors, expected, expected_f32 = {}, {}, {}
    prefix = "model.layers.0.mlp.experts."
    for name, shape in ("gate_up_proj", (3, 256, 128)), ("down_proj", (3, 128, 128)):
        parts = fp8_quantize(fill(name, shape, generator).to(BF16), prefix + name, config)
        tensors.update(parts)
        weight, scale = parts[prefix + name], parts[prefix + name + "_scale_inv"]
        for target, dtype in (expected, BF16), (expected_f32, F32):
            target[prefix + name] = Fp8Dequantize(None)._dequantize_one(weight, scale, dtype)
    tensors["model.layers.0.mlp.gate.weight"] = fill("gate", (3, 128), generator).to(BF16)
    expected["model.layers.0.mlp.gate.weight"] = tensors["model.layers.0.mlp.gate.weight"]
    write_config(folder, model_config, json.loads(config.to_json_string(use_diff=False)))
    save(folder, tensors)
    return expected, expected_f32


@scheme("fp8_deepseek_v4")
def fp8_deepseek_v4(folder):
    """DeepSeek-V4's own names: `.scale` (E8M0), FP8 blocks for dense weights, FP4 in I8 [N, K/2] with a scale every
    32 columns for the routed experts."""
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4
    from gptqmodel.utils.model_dequant import dequantize_deepseek_v4_fp4_expert
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    config = FineGrainedFP8Config(scale_fmt="ue8m0", expert_dtype="fp4")
    generator = torch.Generator().manual_seed(7)
    tensors, expected, expected_f32 = {}, {}, {}
    for name, shape in ("layers.0.attn.wq_a", (128, 256)), ("layers.0.ffn.shared_experts.w1", (256, 128)):
        parts = fp8_quantize(fill(name, shape, generator).to(BF16), "weight", config)
        tensors[name + ".weight"], tensors[name + ".scale"] = parts["weight"], parts["weight_scale_inv"]
        expected[name + ".weight"], expected_f32[name + ".weight"] = fp8_decode(
            (parts["weight"], parts["weight_scale_inv"]))
    for expert in range(2):
        for part, shape in ("w1", (96, 128)), ("w2", (128, 96)), ("w3", (96, 128)):
            name = f"layers.0.ffn.experts.{expert}.{part}"
            weight = fill("up_proj", shape, generator)
            blocks = weight.reshape(shape[0], -1, 32)
            exponent = torch.ceil(torch.log2(blocks.abs().amax(-1) / 6)).clamp(-127, 127)
            codes = cast_to_fp4((blocks / 2.0 ** exponent[..., None]).reshape(shape).to(BF16))
            tensors[name + ".weight"] = pack_fp4_to_uint8(codes).view(torch.int8)
            tensors[name + ".scale"] = (2.0 ** exponent).to(torch.float8_e8m0fnu)
            for target, dtype in (expected, BF16), (expected_f32, F32):
                target[name + ".weight"] = dequantize_deepseek_v4_fp4_expert(
                    tensors[name + ".weight"], tensors[name + ".scale"], target_dtype=dtype)
                other = Fp8Dequantize(None)._dequantize_one(tensors[name + ".weight"], tensors[name + ".scale"], dtype)
                assert torch.equal(other, target[name + ".weight"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(
        {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "dtype": "bfloat16",
         "expert_dtype": "fp4",
         "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                 "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}}, indent=2) + "\n")
    save(folder, tensors)
    return expected, expected_f32


# ---------------------------------------------------------------- 6. gpt-oss

def mxfp4(weight):
    """Blocks of 32 with the exponent of their greatest value, less 2, as OCP MX has: U8 [..., K/32, 16], U8 scales."""
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4
    blocks = weight.float().unflatten(-1, (-1, 32))
    greatest = blocks.abs().amax(-1)
    exponent = torch.where(greatest > 0, torch.floor(torch.log2(greatest)) - 2, -127).clamp(-127, 127)
    codes = cast_to_fp4((blocks / 2.0 ** exponent[..., None]).clamp(-6, 6).to(BF16))
    packed = pack_fp4_to_uint8(codes.reshape(-1, 32)).reshape(*blocks.shape[:-1], 16)
    return packed, (exponent + 127).to(torch.uint8)


@scheme("gpt_oss_mxfp4")
def gpt_oss(folder):
    """Expert stacks [E, 2I, H/32, 16]; transformers loads them on the CPU as the parameters [E, H, 2I]."""
    from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    config = GptOssConfig(num_hidden_layers=1, num_local_experts=3, num_experts_per_tok=2, vocab_size=48,
                          hidden_size=64, intermediate_size=96, head_dim=16, num_attention_heads=4,
                          num_key_value_heads=2, dtype=BF16, architectures=["GptOssForCausalLM"])
    model = GptOssForCausalLM(config).to(BF16)
    generator = torch.Generator().manual_seed(7)
    tensors, stacks = {}, {}
    for name, parameter in sorted(model.state_dict().items()):
        value = fill("norm" if "norm" in name else name, tuple(parameter.shape), generator).to(BF16)
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            value = value.transpose(1, 2).contiguous()
            value[0, 0] = 0
            tensors[name + "_blocks"], tensors[name + "_scales"] = stacks[name] = mxfp4(value)
        else:
            tensors[name] = value
    write_config(folder, config, {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"],
                                  "quant_method": "mxfp4"})
    save(folder, tensors)
    expected = state_of(AutoModelForCausalLM.from_pretrained(folder, dtype=BF16))
    expected_f32 = {name: convert_moe_packed_tensors(*parts, dtype=F32) for name, parts in stacks.items()}
    for name in stacks:
        assert torch.equal(expected[name], expected_f32[name].to(BF16)), name
    return expected, expected_f32
