#!/usr/bin/env python3
"""Tiny checkpoints in the quantization schemes of the Hugging Face hub, written by the packages that own the schemes.

make.py OUT_DIR [SCHEME...]        without names: every scheme; a name ending in * takes all that start so
make.py --list                     prints the schemes

For each scheme:
    OUT_DIR/SCHEME/                         config.json and model.safetensors (or shards), as on the hub
    OUT_DIR/SCHEME.expected.safetensors     every logical tensor by its logical name, in the dtype in which the
                                            package's own decoder yields it; what is not quantized as it is
    OUT_DIR/SCHEME.expected_f32.safetensors the quantized ones again, where the decoder can calculate in f32
facts.md beside this file says what each folder holds and how it is decoded.

The package that a scheme belongs to writes the tensors and config.json, and reads the written file back for the
expected values; where a package cannot write on a CPU (gpt-oss, DeepSeek-V4, partial FP8 blocks, torchao's Int4Tensor),
its layout is written here and its decoder gives the expected values. Weights are seeded: a second run writes the same
tensors (the order of a file's metadata may differ). All schemes take one or two minutes and 50 MB.

Packages (Python 3.11, CPU only; --no-deps keeps CUDA out):
    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 transformers==5.24.0 compressed-tensors==0.20.0
                accelerate==1.15.0 mlx==0.32.4 mlx-cpu==0.32.4
    pip install --no-deps auto-round==0.16.1 py-cpuinfo
    pip install --no-deps torchao==0.18.0 bitsandbytes==0.50.2 autoawq==0.2.9 mlx-lm==0.32.2 comfy-kitchen==0.2.40
                hqq==0.2.8.post1 einops termcolor optimum-quanto==0.2.7 amd-quark==0.13 onnx onnxslim
                nvidia-modelopt==0.47.0 omegaconf antlr4-python3-runtime==4.9.3 pulp scipy nvidia-ml-py ninja
    pip install --no-deps --no-build-isolation gptqmodel==7.7.0   (with BUILD_CUDA_EXT=0)
    pip install --no-deps device-smi pypcre tokenicer logbar defuser threadpoolctl dill xxhash multiprocess pandas
                datasets pyarrow pillow protobuf requests urllib3 certifi charset-normalizer python-dateutil six pytz
                aiohttp
    pip install --no-deps --target DIR compressed-tensors==0.10.2   for the schemes ct_old_*, which are left out unless
                                                                    OLD_COMPRESSED_TENSORS=DIR
"""
import dataclasses
import fnmatch
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

os.environ.setdefault("GPTQMODEL_DISABLE_PACK_EXT", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("LOGURU_LEVEL", "ERROR")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

SCHEMES = {}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
FP8 = torch.float8_e4m3fn
OLD = "OLD_COMPRESSED_TENSORS"


def scheme(name, **arguments):
    """Registers a function(folder, **arguments) -> (expected, expected in f32 or None) under a name."""
    def add(function):
        SCHEMES[name] = (function, arguments)
        return function
    return add


# ---------------------------------------------------------------- models

def llama_config(hidden=64, inter=192, heads=2, kv=1, layers=1, tied=True, bias=False, dtype=BF16):
    from transformers import LlamaConfig
    return LlamaConfig(vocab_size=48, hidden_size=hidden, intermediate_size=inter, num_hidden_layers=layers,
                       num_attention_heads=heads, num_key_value_heads=kv, head_dim=hidden // heads,
                       max_position_embeddings=128, tie_word_embeddings=tied, attention_bias=bias, dtype=dtype,
                       architectures=["LlamaForCausalLM"])


def fill(name, shape, generator):
    """Weights with what decoders get wrong: a row of zeros, rows of one sign (zero points at both ends), outliers."""
    weight = torch.randn(shape, generator=generator) * 0.05
    if len(shape) >= 2:
        if "q_proj" in name:
            weight[..., 3, :] = 0
        if "k_proj" in name:
            weight[..., 5, :] = weight[..., 5, :].abs() + 0.01
            weight[..., 6, :] = -weight[..., 6, :].abs() - 0.01
        if "up_proj" in name:
            weight[..., ::7, ::11] *= 8
        if "down_proj" in name:
            weight[..., 1, :] *= 2.0 ** -12
            weight[..., 2, :] *= 2.0 ** 8
    elif "norm" in name:
        weight = weight + 1
    return weight


def llama(seed=7, **sizes):
    """A LlamaForCausalLM with seeded weights."""
    from transformers import LlamaForCausalLM
    config = llama_config(**sizes)
    model = LlamaForCausalLM(config).to(config.dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(fill(name, tuple(parameter.shape), generator))
    return model.eval()


def linears(model):
    return [(name, module) for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and not name.endswith("lm_head")]


def state_of(model):
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def write_config(folder, config, quantization=None, key="quantization_config"):
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    path = folder / "config.json"
    content = json.loads(path.read_text())
    if quantization is not None:
        content[key] = quantization
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def save(folder, tensors, metadata=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()},
              folder / "model.safetensors", metadata=metadata or {"format": "pt"})


def read(folder):
    """All tensors of a folder, of all its shards."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def grouped(tensors, suffixes):
    """{module: {suffix: tensor}} of the tensors named MODULE.SUFFIX, and the tensors that remain."""
    modules, rest = {}, {}
    for name, tensor in tensors.items():
        module, _, suffix = name.rpartition(".")
        if suffix in suffixes:
            modules.setdefault(module, {})[suffix] = tensor
        else:
            rest[name] = tensor
    return modules, rest


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


# ---------------------------------------------------------------- 2. compressed-tensors

CT_SUFFIXES = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_global_scale",
               "input_scale", "input_zero_point", "input_global_scale")


def ct_ranges(weight, args):
    """Least and greatest values as llm-compressor's min-max observer finds them."""
    strategy = args.strategy
    if strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    if strategy == "channel":
        return weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    if strategy in ("group", "tensor_group"):
        groups = weight.unflatten(-1, (-1, args.group_size))
        return groups.amin(-1), groups.amax(-1)
    from compressed_tensors.quantization.utils import maybe_pad_tensor_for_block_quant
    rows, columns = args.block_structure
    padded = maybe_pad_tensor_for_block_quant(weight, (rows, columns))
    blocks = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    return blocks.amin((1, 3)), blocks.amax((1, 3))


def ct_calibrate(module):
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    args, weight = module.quantization_scheme.weights, module.weight.detach()
    global_scale = None
    if args.strategy == "tensor_group":
        global_scale = generate_gparam(weight.min(), weight.max())
        module.weight_global_scale.data.copy_(global_scale)
    low, high = ct_ranges(weight, args)
    scale, zero_point = calculate_qparams(low, high, args, global_scale=global_scale)
    module.weight_scale.data = scale.to(module.weight_scale.dtype).reshape(module.weight_scale.shape)
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data = zero_point.to(module.weight_zero_point.dtype).reshape(
            module.weight_zero_point.shape)
    for name, value in ("input_scale", 0.0123), ("input_global_scale", 437.5):
        if hasattr(module, name):
            getattr(module, name).data.fill_(value)


def ct_save(folder, model, groups, format=None, shard=None, **fields):
    """Applies the groups {name: scheme arguments}, compresses, writes, and decompresses what was written."""
    from compressed_tensors.compressors import BaseCompressor, ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, apply_quantization_config
    config = QuantizationConfig(config_groups={name: QuantizationScheme(**group) for name, group in groups.items()},
                                ignore=["lm_head"], **fields)
    apply_quantization_config(model, config)
    schemes = {}
    for name, module in model.named_modules():
        if getattr(getattr(module, "quantization_scheme", None), "weights", None) is not None:
            ct_calibrate(module)
            schemes[name] = module.quantization_scheme
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format=format)
    compressor.compress_model(model)
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    compressor.update_config(str(folder))
    modules, expected = grouped(read(folder), CT_SUFFIXES)
    expected_f32 = {}
    for name, quantization in schemes.items():
        format = getattr(quantization.format, "value", quantization.format)
        decoder = BaseCompressor.get_value_from_registry(format)
        state = modules[name]
        if "weight_packed" not in state:
            state["weight"] = expected.pop(name + ".weight")
        expected[name + ".weight"] = decoder.decompress(state, quantization)["weight"]
        expected_f32[name + ".weight"] = ct_decode_f32(decoder, state, quantization)
    return expected, expected_f32


def ct_decode_f32(decoder, state, quantization):
    """The same formula with scales of f32, in which compressed-tensors then calculates."""
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.mxfp6.helpers import unpack_fp6_from_uint8
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    format = getattr(quantization.format, "value", quantization.format)
    if format in ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp6-pack-quantized", "mxfp8-quantized"):
        if "weight_packed" in state:
            packed = state["weight_packed"]
            rows, columns = packed.shape
            codes = (unpack_fp6_from_uint8(packed, rows, columns * 4 // 3) if "mxfp6" in format
                     else unpack_fp4_from_uint8(packed, rows, columns * 2))
        else:
            codes = state["weight"]
        scale = state["weight_scale"]
        scale = scale.to(F32) if format.startswith("nvfp4") else decompress_mx_scale(scale).to(F32)
        return dequantize(x_q=codes, scale=scale, args=quantization.weights, dtype=F32,
                          global_scale=state.get("weight_global_scale"))
    return decoder.decompress({**state, "weight_scale": state["weight_scale"].to(F32)}, quantization)["weight"]


def preset(name):
    from compressed_tensors.quantization import preset_name_to_scheme
    return preset_name_to_scheme(name, ["Linear"]).model_dump(exclude={"format"})


def ct_weights(**args):
    from compressed_tensors.quantization import QuantizationArgs
    return {"targets": ["Linear"], "weights": QuantizationArgs(**args)}


def ct_int8(**args):
    from compressed_tensors.quantization import QuantizationArgs
    return ct_weights(num_bits=8, type="int", **args) | {
        "input_activations": QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True)}


@scheme("ct_fp8_tensor", group=lambda: preset("FP8"))
@scheme("ct_fp8_channel_sharded", group=lambda: preset("FP8_DYNAMIC"), shard="20KB", tied=False)
@scheme("ct_fp8_block", group=lambda: preset("FP8_BLOCK"), hidden=192, inter=200, heads=3)
@scheme("ct_naive_fp8_channel", group=lambda: ct_weights(num_bits=8, type="float", strategy="channel"))
@scheme("ct_naive_fp8_group", group=lambda: ct_weights(num_bits=8, type="float", strategy="group", group_size=32))
@scheme("ct_int8_channel", group=lambda: preset("W8A8"))
@scheme("ct_int8_channel_asym", group=lambda: ct_int8(strategy="channel", symmetric=False))
@scheme("ct_int8_tensor_asym", group=lambda: ct_int8(strategy="tensor", symmetric=False))
@scheme("ct_int8_group", group=lambda: ct_int8(strategy="group", group_size=64))
@scheme("ct_int8_group_asym_f16", group=lambda: ct_int8(strategy="group", group_size=32, symmetric=False), dtype=F16)
@scheme("ct_naive_int8_block", format="naive-quantized",
        group=lambda: ct_int8(strategy="block", block_structure=[64, 48]), inter=200)
@scheme("ct_pack4", group=lambda: preset("W4A16"), hidden=128, inter=384)
@scheme("ct_pack4_asym", group=lambda: preset("W4A16_ASYM"), hidden=128, inter=384, tied=False)
@scheme("ct_pack4_channel_asym", hidden=36, inter=100,
        group=lambda: ct_weights(num_bits=4, type="int", strategy="channel", symmetric=False))
@scheme("ct_pack2", group=lambda: ct_weights(num_bits=2, type="int", strategy="group", group_size=32, symmetric=False))
@scheme("ct_pack3", group=lambda: ct_weights(num_bits=3, type="int", strategy="group", group_size=64))
@scheme("ct_pack3_channel_asym", hidden=36, inter=100,
        group=lambda: ct_weights(num_bits=3, type="int", strategy="channel", symmetric=False))
@scheme("ct_pack5_asym", inter=160,
        group=lambda: ct_weights(num_bits=5, type="int", strategy="group", group_size=32, symmetric=False))
@scheme("ct_pack7", group=lambda: ct_weights(num_bits=7, type="int", strategy="channel"), hidden=36, inter=100)
@scheme("ct_pack8_tensor", group=lambda: ct_weights(num_bits=8, type="int", strategy="tensor"))
@scheme("ct_pack8_asym", group=lambda: ct_weights(num_bits=8, type="int", strategy="channel", symmetric=False))
@scheme("ct_pack4_actorder_weight",
        group=lambda: ct_weights(num_bits=4, type="int", strategy="group", group_size=32, actorder="weight"))
@scheme("ct_nvfp4", group=lambda: preset("NVFP4"))
@scheme("ct_nvfp4a16", group=lambda: preset("NVFP4A16"), inter=80)
@scheme("ct_mxfp4", group=lambda: preset("MXFP4"))
@scheme("ct_mxfp4_f32", group=lambda: preset("MXFP4A16"), dtype=F32)
@scheme("ct_mxfp6", group=lambda: preset("MXFP6A16"))
@scheme("ct_mxfp8", group=lambda: preset("MXFP8"))
def ct(folder, group, format=None, shard=None, **sizes):
    return ct_save(folder, llama(**sizes), {"group_0": group()}, format=format, shard=shard)


@scheme("ct_mixed")
def ct_mixed(folder):
    """Two groups of two formats: format "mixed-precision", each group with its own."""
    attention = preset("FP8_DYNAMIC") | {"targets": ["re:.*self_attn.*"]}
    mlp = preset("W4A16") | {"targets": ["re:.*mlp.*"]}
    return ct_save(folder, llama(hidden=128, inter=128), {"group_0": attention, "group_1": mlp})


@scheme("ct_mixed_block")
def ct_mixed_block(folder):
    """Integers in words, and blocks of FP8 of which the last is incomplete, so that several sizes fit their number."""
    block = ct_weights(num_bits=8, type="float", strategy="block", block_structure=[48, 64])
    integers = preset("W4A16") | {"targets": ["re:.*self_attn.*"]}
    return ct_save(folder, llama(hidden=128, inter=80), {"group_0": integers, "group_1": block | {"targets": ["Linear"]}})


@scheme("ct_old_pack3", bits=3, symmetric=True)
@scheme("ct_old_pack3_asym", bits=3, symmetric=False, hidden=60, inter=120, group=20)
@scheme("ct_old_pack4_actorder_group", bits=4, symmetric=True, order=True)
def ct_old(folder, **arguments):
    """compressed-tensors 0.10.2 in a process of its own: words padded where the bits do not divide 32; weight_g_idx."""
    job = json.dumps({"folder": str(folder), **arguments})
    environment = dict(os.environ, PYTHONPATH=os.environ[OLD])
    subprocess.run([sys.executable, __file__, "--old", job], env=environment, check=True)
    result = [load_file(folder / f"{part}.tmp") for part in ("expected", "expected_f32")]
    for part in "expected", "expected_f32":
        (folder / f"{part}.tmp").unlink()
    return result


def ct_old_process(folder, bits, symmetric, order=False, group=32, **sizes):
    import compressed_tensors
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import (
        PackedQuantizationCompressor, unpack_from_int32)
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.quantization.utils import calculate_qparams
    assert compressed_tensors.__version__ == "0.10.2", compressed_tensors.__version__
    folder = pathlib.Path(folder)
    args = QuantizationArgs(num_bits=bits, type="int", strategy="group", group_size=group, symmetric=symmetric,
                            actorder="group" if order else None)
    config = QuantizationConfig(config_groups={"group_0": QuantizationScheme(targets=["Linear"], weights=args)},
                                ignore=["lm_head"], format="pack-quantized", quantization_status="compressed")
    model = llama(**sizes)
    tensors = state_of(model)
    expected, expected_f32 = dict(tensors), {}
    generator = torch.Generator().manual_seed(11)
    compressor = PackedQuantizationCompressor(config=config)
    for name, module in linears(model):
        key = name + ".weight"
        weight = tensors.pop(key)
        columns = weight.shape[1]
        g_idx = None
        if order:
            g_idx = torch.empty(columns, dtype=torch.int32)
            g_idx[torch.randperm(columns, generator=generator)] = torch.arange(columns, dtype=torch.int32) // group
        ordered = weight if g_idx is None else weight[:, torch.argsort(g_idx, stable=True)]
        scale, zero_point = calculate_qparams(*ct_ranges(ordered, args), args)
        parts = compressor.compress_weight(weight, scale.to(weight.dtype), args, zero_point=zero_point, g_idx=g_idx)
        parts["weight_scale"] = scale.to(weight.dtype)
        if g_idx is not None:
            parts["weight_g_idx"] = g_idx
        tensors.update({f"{name}.{part}": tensor for part, tensor in parts.items()})
        codes = unpack_from_int32(parts["weight_packed"], bits, weight.shape)
        for target, dtype in (expected, weight.dtype), (expected_f32, F32):
            target[key] = dequantize(x_q=codes, scale=parts["weight_scale"].to(dtype), g_idx=g_idx,
                                     zero_point=None if symmetric else zero_point, args=args)
    quantization = {"version": compressed_tensors.__version__, "quant_method": "compressed-tensors",
                    "sparsity_config": {}, "transform_config": {}, **config.model_dump(exclude=["quant_method"])}
    write_config(folder, model.config, json.loads(json.dumps(quantization, default=str)))
    save(folder, tensors)
    for part, content in ("expected", expected), ("expected_f32", expected_f32):
        save_file({name: tensor.contiguous() for name, tensor in content.items()}, folder / f"{part}.tmp")


# ---------------------------------------------------------------- 3. GPTQ

def gptq_layer(linear, bits, group, sym, order, format, generator):
    """gptqmodel's TorchLinear packed with rounding to nearest; order: groups of permuted columns, as desc_act has."""
    from gptqmodel import QuantizeConfig
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization.quantizer import Quantizer
    n, k = linear.weight.shape
    size = k if group == -1 else group
    columns = torch.randperm(k, generator=generator) if order else torch.arange(k)
    g_idx = torch.empty(k, dtype=torch.int32)
    g_idx[columns] = torch.arange(k, dtype=torch.int32) // size
    config = QuantizeConfig(bits=bits, group_size=group, sym=sym, desc_act=order, format=format, act_group_aware=False,
                            offload_to_disk=False)
    scales, zeros = [], []
    for start in range(0, k, size):
        quantizer = Quantizer(config)
        quantizer.configure(perchannel=True)
        quantizer.find_params(linear.weight.detach().float()[:, columns[start:start + size]], weight=True)
        scales.append(quantizer.scale)
        zeros.append(quantizer.zero)
    layer = TorchLinear(bits=bits, group_size=group, sym=sym, desc_act=order, in_features=k, out_features=n,
                        bias=linear.bias is not None, format=config.format)
    layer.pack_original(linear.float(), torch.cat(scales, 1), torch.cat(zeros, 1), g_idx)
    return config, layer.eval()


@scheme("gptq4", bits=4, group=64)
@scheme("gptq4_asym", bits=4, group=64, sym=False)
@scheme("gptq4_asym_desc_act_v2", bits=4, group=32, sym=False, order=True, format="gptq_v2", hidden=64, inter=200)
@scheme("gptq4_channel", bits=4, group=-1, tied=False)
@scheme("gptq4_edges", bits=4, group=64, hidden=64, inter=196, bias=True)
@scheme("gptq2_asym", bits=2, group=32, sym=False)
@scheme("gptq2_v2", bits=2, group=64, format="gptq_v2", order=True)
@scheme("gptq3", bits=3, group=64)
@scheme("gptq3_asym", bits=3, group=32, sym=False)
@scheme("gptq3_asym_desc_act_v2", bits=3, group=32, sym=False, order=True, format="gptq_v2")
@scheme("gptq8_desc_act", bits=8, group=64, order=True)
@scheme("gptq8_asym_v2", bits=8, group=32, sym=False, format="gptq_v2")
@scheme("gptq_p3", bits=3, group=64, sym=False, format="gptq_p")
@scheme("gptq_p5", bits=5, group=32, sym=False, format="gptq_p")
@scheme("gptq_p7", bits=7, group=32, format="gptq_p")
def gptq(folder, bits, group, sym=True, order=False, format="gptq", **sizes):
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
    from gptqmodel.utils.model_dequant import convert_gptq_file
    model = llama(dtype=F16, **sizes)
    tensors = state_of(model)
    generator = torch.Generator().manual_seed(11)
    layers = {}
    for name, module in linears(model):
        config, layer = gptq_layer(module, bits, group, sym, order, format, generator)
        layers[name] = layer
        if format == "gptq":
            convert_gptq_v2_to_v1_format_module(layer, config)
        del tensors[name + ".weight"]
        tensors.pop(name + ".bias", None)
        tensors.update({f"{name}.{part}": tensor for part, tensor in layer.state_dict().items()})
    config.meta_set_versionable(key="quantizer", value=["gptqmodel:7.7.0"])
    quantization = json.loads(json.dumps(config.to_dict(), default=str))
    for key in "method", "quant_method", "format", "checkpoint_format":
        quantization[key] = str(getattr(config.to_dict()[key], "value", config.to_dict()[key]))
    quantization["meta"].pop("offload_to_disk_path", None)
    write_config(folder, model.config, quantization)
    (folder / "quantize_config.json").write_text(json.dumps(quantization, indent=2) + "\n")
    save(folder, tensors)

    modules, expected = grouped(read(folder), ("qweight", "qzeros", "scales", "g_idx", "bias"))
    expected_f32 = {}
    for name, parts in modules.items():
        for target, dtype in (expected, F16), (expected_f32, F32):
            target[name + ".weight"] = gptq_decode(parts, layers[name], bits, group, sym, order, format, dtype)
        if "bias" in parts:
            expected[name + ".bias"] = parts["bias"]
    try:  # gptqmodel's other decoder, which works on whole files: where it differs is in facts.md
        other = convert_gptq_file(folder / "model.safetensors", F32, quantization, "cpu")
        bad = [name for name in expected_f32 if not torch.equal(other[name], expected_f32[name])]
        if bad:
            print(f"  gptqmodel's convert_gptq_file decodes {len(bad)} of {len(expected_f32)} weights otherwise:", *bad)
    except Exception as error:
        print("  convert_gptq_file:", type(error).__name__, error)
    return expected, expected_f32


def gptq_decode(parts, written, bits, group, sym, order, format, dtype):
    """TorchLinear.dequantize_weight of tensors as read, with scales of a dtype, as [N, K]."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization import FORMAT
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
    layer = TorchLinear(bits=bits, group_size=group, sym=sym, desc_act=order, in_features=written.in_features,
                        out_features=written.out_features, bias="bias" in parts, format=FORMAT(format))
    layer.load_state_dict(parts)
    if format == "gptq":
        convert_gptq_v1_to_v2_format_module(layer, bits, torch.int32)
    layer.scales = layer.scales.to(dtype)
    return layer.eval().dequantize_weight().T.contiguous()


# ---------------------------------------------------------------- 4. AWQ

def awq_modules():
    """autoawq's modules without its package code, which does not start with transformers 5."""
    if "awq" not in sys.modules:
        root = pathlib.Path(importlib.util.find_spec("awq").submodule_search_locations[0])
        for name in "awq", "awq.modules", "awq.modules.linear", "awq.models", "awq.utils":
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules["awq.modules.triton"] = None
    from awq.models._config import AwqConfig
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm
    return AwqConfig, WQLinear_GEMM, dequantize_gemm


def awq_ranges(weight, group):
    """AwqQuantizer.pseudo_quantize_tensor of autoawq 0.2.9 (zero_point=True), less the weight that it returns."""
    groups = weight.reshape(-1, group)
    low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    scales = (high - low).clamp(min=1e-5) / 15
    zeros = (-torch.round(low / scales)).clamp_(0, 15)
    pseudo = (torch.clamp(torch.round(groups / scales) + zeros, 0, 15) - zeros) * scales
    return pseudo.reshape(weight.shape), scales.view(weight.shape[0], -1), zeros.view(weight.shape[0], -1)


@scheme("awq", group=64)
@scheme("awq_group128_untied", group=128, hidden=128, inter=384, tied=False)
@scheme("awq_bias", group=32, inter=224, bias=True)
def awq(folder, group, **sizes):
    AwqConfig, WQLinear_GEMM, dequantize_gemm = awq_modules()
    model = llama(dtype=F16, **sizes)
    tensors = state_of(model)
    for name, module in linears(model):
        weight, scales, zeros = awq_ranges(module.weight.detach(), group)
        module.weight.data = weight
        layer = WQLinear_GEMM.from_linear(module, 4, group, False, scales.t().contiguous(), zeros.t().contiguous())
        del tensors[name + ".weight"]
        tensors.pop(name + ".bias", None)
        tensors.update({f"{name}.{part}": tensor for part, tensor in layer.state_dict().items()})
    write_config(folder, model.config, AwqConfig(q_group_size=group).to_transformers_dict())
    save(folder, tensors)
    modules, expected = grouped(read(folder), ("qweight", "qzeros", "scales", "bias"))
    expected_f32 = {}
    for name, parts in modules.items():
        for target, dtype in (expected, F16), (expected_f32, F32):
            target[name + ".weight"] = dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].to(dtype),
                                                       4, group).T.contiguous()
        if "bias" in parts:
            expected[name + ".bias"] = parts["bias"]
    return expected, expected_f32


# ---------------------------------------------------------------- 5. bitsandbytes

def gpt2(dtype=BF16, seed=7):
    """A GPT2LMHeadModel with seeded weights: its Conv1D store weights as [inputs, outputs]."""
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=32, n_embd=64, n_layer=1, n_head=2, dtype=dtype))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(fill(name, tuple(parameter.shape), generator))
    return model.to(dtype).eval()


def quantize_by_transformers(folder, config, model=None, **sizes):
    """Loads a plain model with a quantization_config, and saves what transformers made of it."""
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as plain:
        (model() if model else llama(**sizes)).save_pretrained(plain)
        model = AutoModelForCausalLM.from_pretrained(plain, quantization_config=config, device_map="cpu",
                                                     dtype=sizes.get("dtype", BF16))
    model.save_pretrained(folder)
    return model


def as_unquantized(name, weight):
    """transformers transposes the weights of Conv1D before it quantizes them."""
    conv1d = name.split(".")[-2] in ("c_attn", "c_proj", "c_fc")
    return weight.t().contiguous() if conv1d else weight


@scheme("bnb_nf4", kind="nf4")
@scheme("bnb_nf4_nested", kind="nf4", nested=True)
@scheme("bnb_fp4", kind="fp4", tied=False)
@scheme("bnb_fp4_nested_f16", kind="fp4", nested=True, dtype=F16)
@scheme("bnb_nf4_edges", kind="nf4", nested=True, hidden=72, inter=100)
@scheme("bnb_nf4_bf16_storage", kind="nf4", storage=BF16)
@scheme("bnb_nf4_f32_bias", kind="nf4", dtype=F32, bias=True)
@scheme("bnb_gpt2_nf4", kind="nf4", nested=True, model=gpt2)
def bnb_4bit(folder, kind, nested=False, storage=torch.uint8, **sizes):
    from bitsandbytes.functional import QuantState, dequantize_4bit
    from transformers import BitsAndBytesConfig
    quantize_by_transformers(folder, BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype=BF16,
        bnb_4bit_quant_storage=storage), **sizes)
    expected, expected_f32, states = {}, {}, {}
    tensors = read(folder)
    for name, tensor in tensors.items():
        if ".weight." in name:
            weight, _, part = name.partition(".weight.")
            states.setdefault(weight + ".weight", {})[part] = tensor
        else:
            expected[name] = tensor
    for name, parts in states.items():
        for target, dtype in (expected, None), (expected_f32, F32):
            state = QuantState.from_dict(dict(parts), device="cpu")
            state.dtype = dtype or state.dtype
            target[name] = as_unquantized(name, dequantize_4bit(tensors[name], state))
    return expected, expected_f32


@scheme("bnb_int8")
@scheme("bnb_int8_untied_f16", tied=False, dtype=F16)
@scheme("bnb_gpt2_int8", model=gpt2)
def bnb_int8(folder, **sizes):
    from bitsandbytes.functional import int8_vectorwise_dequant
    from transformers import BitsAndBytesConfig
    quantize_by_transformers(folder, BitsAndBytesConfig(load_in_8bit=True), **sizes)
    modules, expected = grouped(read(folder), ("SCB", "weight_format"))
    expected_f32 = {}
    for name, parts in modules.items():
        key = name + ".weight"
        expected_f32[key] = as_unquantized(key, int8_vectorwise_dequant(expected[key], parts["SCB"]))
        expected[key] = expected_f32[key].to(sizes.get("dtype", BF16))
    return expected, expected_f32


# ---------------------------------------------------------------- auto-round

@scheme("auto_round4", bits=4)
@scheme("auto_round5", bits=5)
@scheme("auto_round3_zp", bits=3, packing="auto_round:auto_gptq")
@scheme("auto_round_mixed", bits=4, packing="auto_round:auto_gptq",
        extra={"model.layers.0.self_attn.k_proj": {"bits": 8, "group_size": 64}, ".*down_proj.*": {"bits": 2}})
def auto_round(folder, bits, packing="auto_round", extra=None):
    """Asymmetric, in groups of 32. auto-round packs; its layer multiplies the identity by what it decodes."""
    import re
    if packing == "auto_round":
        from auto_round_extension.torch.qlinear_torch import QuantLinear
    else:
        from auto_round_extension.torch.qlinear_torch_zp import QuantLinear
    model = llama()
    expected, expected_f32 = state_of(model), {}
    tensors = dict(expected)
    for name, module in linears(model):
        own = next((value for key, value in (extra or {}).items() if re.search(key, name)), {})
        width, group = own.get("bits", bits), own.get("group_size", 32)
        weight = module.weight.detach().float()
        groups = weight.unflatten(1, (-1, group))
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = ((high - low) / (2 ** width - 1)).clamp(min=1e-5).to(F16).float()
        zero = (-low / scale).round().clamp(0, 2 ** width - 1)
        layer = QuantLinear(width, group, module.in_features, module.out_features, False, weight_dtype=BF16)
        layer.device = "cpu"
        plain = torch.nn.Linear(module.in_features, module.out_features, bias=False)
        plain.weight.data = weight
        layer.pack(plain, scale, zero, None)
        parts = layer.state_dict()
        tensors.pop(name + ".weight")
        tensors |= {f"{name}.{part}": parts[part] for part in ("qweight", "qzeros", "scales")}
        layer.scales = layer.scales.float()
        expected_f32[name + ".weight"] = layer(torch.eye(module.in_features)).t().contiguous()
        expected[name + ".weight"] = expected_f32[name + ".weight"].to(BF16)
    save(folder, tensors)
    write_config(folder, model.config, {
        "bits": bits, "group_size": 32, "sym": False, "data_type": "int", "quant_method": "auto-round",
        "packing_format": packing, "block_name_to_quantize": "model.layers", "autoround_version": "0.16.1",
        **({"extra_config": extra} if extra else {})})
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


# ---------------------------------------------------------------- 7. torchao

def torchao_expected(folder):
    """Tensor subclasses made again from the file, and decoded."""
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict
    tensors, metadata = read(folder), {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            metadata.update(file.metadata())
    state, rest = unflatten_tensor_state_dict(tensors, metadata)
    assert not rest, list(rest)
    expected, expected_f32 = {}, {}
    for name, tensor in state.items():
        if type(tensor) is torch.Tensor:
            expected[name] = tensor
        elif type(tensor).__name__ == "Int4Tensor":
            expected_f32[name] = int4_decode(tensor)
            expected[name] = expected_f32[name].to(tensor.dtype)
        else:
            expected[name] = tensor.dequantize()
            try:
                expected_f32[name] = tensor.dequantize(output_dtype=F32)
            except TypeError:
                pass
    return expected, expected_f32


def torchao_config(kind):
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.prototype.mx_formats.inference_workflow import NVFP4WeightOnlyConfig
    from torchao.quantization import (Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig,
                                      Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerAxis, PerGroup, PerRow, PerTensor)
    from torchao.quantization.quant_primitives import MappingType
    return {"int8": lambda: Int8WeightOnlyConfig(),
            "int8_group": lambda: Int8WeightOnlyConfig(granularity=PerGroup(32)),
            "int8_dynamic": lambda: Int8DynamicActivationInt8WeightConfig(),
            "float8": lambda: Float8WeightOnlyConfig(granularity=PerRow()),
            "float8_tensor": lambda: Float8WeightOnlyConfig(granularity=PerTensor()),
            "intx4": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
            "intx3_asym": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerAxis(0),
                                                       mapping_type=MappingType.ASYMMETRIC),
            "mxfp8": lambda: MXDynamicActivationMXWeightConfig(),
            "mxfp4": lambda: MXDynamicActivationMXWeightConfig(activation_dtype=torch.float4_e2m1fn_x2,
                                                               weight_dtype=torch.float4_e2m1fn_x2),
            "nvfp4": lambda: NVFP4WeightOnlyConfig()}[kind]()


@scheme("torchao_int8", kind="int8")
@scheme("torchao_int8_group", kind="int8_group", tied=False)
@scheme("torchao_int8_dynamic", kind="int8_dynamic")
@scheme("torchao_float8", kind="float8")
@scheme("torchao_float8_tensor", kind="float8_tensor")
@scheme("torchao_intx4", kind="intx4")
@scheme("torchao_intx3_asym", kind="intx3_asym", hidden=36, inter=100)
@scheme("torchao_mxfp8", kind="mxfp8")
@scheme("torchao_mxfp4", kind="mxfp4")
@scheme("torchao_nvfp4", kind="nvfp4", inter=176)
def torchao(folder, kind, **sizes):
    from transformers import TorchAoConfig
    quantize_by_transformers(folder, TorchAoConfig(torchao_config(kind)), **sizes)
    return torchao_expected(folder)


def int4_decode(tensor):
    """mslk's int4_row_quantize_zp read backwards: q in -8..7, low nibble first, w = q * scale + zero_point."""
    packed = tensor.qdata.view(torch.uint8).int()
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    codes = torch.where(codes > 7, codes - 16, codes).to(F32)
    group = tensor.block_size[-1]
    scale, zero = (part.to(F32).t().repeat_interleave(group, -1) for part in (tensor.scale, tensor.zero_point))
    return codes * scale + zero


@scheme("torchao_int4_plain")
def torchao_int4_plain(folder):
    """Int4Tensor: torchao makes it with mslk (CUDA) only, so its parts are made here by mslk's formula; the file is
    torchao's."""
    from torchao.quantization import Int4Tensor, Int4WeightOnlyConfig
    model = llama()
    state = state_of(model)
    for name, module in linears(model):
        weight, group = module.weight.detach(), 32
        blocks = weight.float().unflatten(-1, (-1, group))
        low, high = blocks.amin(-1), blocks.amax(-1)
        scale = (high - low).clamp(min=1e-6) / 15
        codes = ((blocks - low[..., None]) / scale[..., None]).round().clamp(0, 15).int().flatten(-2) - 8
        packed = ((codes[:, 1::2] << 4) | (codes[:, ::2] & 15)).to(torch.uint8).view(torch.int8)
        state[name + ".weight"] = Int4Tensor(packed, scale.t().to(weight.dtype).contiguous(),
                                             (low + scale * 8).t().to(weight.dtype).contiguous(), [1, group],
                                             list(weight.shape))
    return torchao_save(folder, model, state, Int4WeightOnlyConfig(group_size=32))


@scheme("torchao_float8_dynamic")
def torchao_float8_dynamic(folder):
    """Float8Tensor with settings for activations, which torchao's config makes on a GPU only."""
    from torchao.float8.inference import Float8MMConfig
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, Float8Tensor, PerRow
    from torchao.quantization.quantize_.workflows import QuantizeTensorToFloat8Kwargs
    model = llama()
    state = state_of(model)
    mm_config = Float8MMConfig(use_fast_accum=True)
    for name, module in linears(model):
        state[name + ".weight"] = Float8Tensor.from_hp(
            module.weight.detach(), granularity=PerRow(), mm_config=mm_config,
            act_quant_kwargs=QuantizeTensorToFloat8Kwargs(FP8, PerRow(), mm_config=mm_config))
    return torchao_save(folder, model, state, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()))


def torchao_save(folder, model, state, config):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from transformers import TorchAoConfig
    tensors, metadata = flatten_tensor_state_dict(state)
    write_config(folder, model.config, json.loads(TorchAoConfig(config).to_json_string(use_diff=False)))
    save(folder, tensors, {"format": "pt", **metadata})
    return torchao_expected(folder)


# ---------------------------------------------------------------- 8. diffusion models, ModelOpt

def comfy_model():
    generator = torch.Generator().manual_seed(7)
    shapes = {"double_blocks.0.img_attn.qkv": (192, 64), "double_blocks.0.img_mlp.0": (96, 64),
              "single_blocks.0.linear1": (72, 64)}
    plain = {"img_in.weight": fill("img_in", (64, 16), generator).to(BF16),
             "img_in.bias": fill("bias", (64,), generator).to(BF16)}
    return {name: fill("up_proj", shape, generator).to(BF16) for name, shape in shapes.items()}, plain


@scheme("comfy_scaled_fp8", prefix="")
@scheme("comfy_scaled_fp8_prefix_e5m2", prefix="model.diffusion_model.", dtype=torch.float8_e5m2, full=True)
def comfy_scaled_fp8(folder, prefix, dtype=FP8, full=False):
    """ComfyUI's first form: the marker `scaled_fp8`, NAME.scale_weight, NAME.scale_input; no config.json."""
    from comfy_kitchen.backends.eager.quantization import dequantize_per_tensor_fp8, quantize_per_tensor_fp8
    weights, plain = comfy_model()
    tensors = {prefix + name: tensor for name, tensor in plain.items()}
    expected, expected_f32 = dict(tensors), {}
    tensors[prefix + "scaled_fp8"] = torch.zeros(2 if full else 0, dtype=dtype)
    for name, weight in weights.items():
        scale = weight.abs().amax().to(F32) / torch.finfo(dtype).max
        quantized = quantize_per_tensor_fp8(weight.to(F32), scale, dtype)
        tensors[prefix + name + ".weight"] = quantized
        tensors[prefix + name + ".scale_weight"] = scale.reshape(() if full else 1)
        if not full:
            tensors[prefix + name + ".scale_input"] = torch.ones(1)
        expected[prefix + name + ".weight"] = dequantize_per_tensor_fp8(quantized, scale, BF16)
        expected_f32[prefix + name + ".weight"] = dequantize_per_tensor_fp8(quantized, scale, F32)
    save(folder, tensors, {"modelspec.architecture": "flux-dev"})
    return expected, expected_f32


@scheme("comfy_fp8", layout="TensorCoreFP8Layout", format="float8_e4m3fn")
@scheme("comfy_fp8_marker", layout="TensorCoreFP8Layout", format="float8_e4m3fn", marker=True)
@scheme("comfy_nvfp4", layout="TensorCoreNVFP4Layout", format="nvfp4")
@scheme("comfy_mxfp8", layout="TensorCoreMXFP8Layout", format="mxfp8")
@scheme("comfy_int8", layout="TensorWiseINT8Layout", format="int8_tensorwise", marker=True)
def comfy(folder, layout, format, marker=False):
    """ComfyUI's present form: weight, weight_scale (and weight_scale_2), named in the file's metadata key
    `_quantization_metadata`, or (marker) in a U8 tensor NAME.comfy_quant; comfy-kitchen quantizes and decodes."""
    import comfy_kitchen
    from comfy_kitchen.tensor import get_layout_class
    layout = get_layout_class(layout)
    weights, tensors = comfy_model()
    expected, expected_f32, layers = dict(tensors), {}, {}
    with comfy_kitchen.registry.use_backend("eager"):
        for name, weight in weights.items():
            data, parameters = layout.quantize(weight)
            for suffix, tensor in layout.state_dict_tensors(data, parameters).items():
                tensors[f"{name}.weight{suffix}"] = tensor
            layers[name] = {"format": format}
            if marker:
                tensors[name + ".comfy_quant"] = torch.tensor(list(json.dumps(layers[name]).encode()),
                                                              dtype=torch.uint8)
            rows, columns = weight.shape
            for target, dtype in (expected, BF16), (expected_f32, F32):
                decoded = layout.dequantize(data, dataclasses.replace(parameters, orig_dtype=dtype))
                target[name + ".weight"] = decoded[:rows, :columns].to(dtype)
    save(folder, tensors, {"format": "pt"} if marker else
         {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})})
    return expected, expected_f32


def modelopt_config(algorithm, kv=None):
    """hf_quant_config.json as ModelOpt writes it, and what it puts into config.json."""
    from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
    quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": kv, "exclude_modules": ["lm_head"]}
    if algorithm == "NVFP4":
        quantization["group_size"] = 16
    whole = {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": quantization}
    return whole, convert_hf_quant_config_format(whole)


@scheme("modelopt_nvfp4", algorithm="NVFP4")
@scheme("modelopt_fp8", algorithm="FP8")
def modelopt(folder, algorithm):
    """NVIDIA ModelOpt: weight U8, weight_scale F8_E4M3 and weight_scale_2 F32, or weight F8_E4M3 and weight_scale F32;
    with input_scale and (FP8) scales of the KV cache."""
    from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
    model = llama(tied=False)
    tensors = state_of(model)
    expected, expected_f32 = dict(tensors), {}
    for name, module in linears(model):
        key, weight = name + ".weight", module.weight.detach()
        if algorithm == "NVFP4":
            quantized, scale, scale_2 = NVFP4QTensor.quantize(weight.clone(), 16)
            tensors[key + "_scale"], tensors[key + "_scale_2"] = scale, scale_2
            arguments = {"scale": scale, "double_scale": scale_2, "block_sizes": {-1: 16}}
        else:
            quantized, scale = FP8QTensor.quantize(weight.float())
            tensors[key + "_scale"] = scale.reshape(())
            arguments = {"scale": scale}
            if "k_proj" in name or "v_proj" in name:
                tensors[f"{name}.{name[-6]}_scale"] = torch.tensor(0.75)
        tensors[key] = quantized._quantized_data
        tensors[name + ".input_scale"] = torch.tensor(0.00229)
        expected[key] = quantized.dequantize(dtype=BF16, **arguments)
        expected_f32[key] = quantized.dequantize(dtype=F32, **arguments)
    whole, quantization = modelopt_config(algorithm, "FP8" if algorithm == "FP8" else None)
    write_config(folder, model.config, quantization)
    (folder / "hf_quant_config.json").write_text(json.dumps(whole, indent=4) + "\n")
    save(folder, tensors)
    return expected, expected_f32


@scheme("modelopt_int4_awq", format="int4_awq", algorithm="W4A16_AWQ")
@scheme("modelopt_mxfp4", format="mxfp4", algorithm="MXFP4")
@scheme("modelopt_nvfp4_awq", format="nvfp4_awq", algorithm="NVFP4_AWQ")
@scheme("modelopt_fp8_pb_wo", format="fp8_pb_wo", algorithm="fp8_pb_wo")
def modelopt_packed(folder, format, algorithm):
    """ModelOpt's own packers (modelopt.torch.export.quant_utils). A layer with a `pre_quant_scale` multiplies its input
    by it: the weight of the layer is the decoded one, times the factor of its column. The scales of blocks have the shape
    of the quantizer's amax, [N / 128, 1, K / 128, 1]."""
    from modelopt.torch.export.quant_utils import to_quantized_weight
    from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor
    from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
    model = llama(hidden=128, inter=256, kv=2, tied=False) if format == "fp8_pb_wo" else llama(tied=False)
    tensors = state_of(model)
    expected, expected_f32 = dict(tensors), {}
    generator = torch.Generator().manual_seed(11)
    for name, module in linears(model):
        key, weight = name + ".weight", module.weight.detach().float()
        rows, columns = weight.shape
        if format == "int4_awq":
            scale = (weight.reshape(rows, -1, 32).abs().amax(-1) / 7).clamp(min=1e-6)
            codes = (weight.reshape(rows, -1, 32) / scale[..., None]).round().clamp(-8, 7)
            decoded = (codes * scale[..., None]).reshape(rows, columns)
            tensors[key] = to_quantized_weight(weight, scale, format, block_size=32)
        elif format == "mxfp4":
            quantized, scale = MXFP4QTensor.quantize(weight, 32)
            tensors[key], scale = quantized._quantized_data, scale.reshape(rows, -1)
            decoded = quantized.dequantize(dtype=F32, scale=scale, block_sizes={-1: 32})
        elif format == "nvfp4_awq":
            quantized, scale, tensors[key + "_scale_2"] = NVFP4QTensor.quantize(weight, 16)
            tensors[key] = quantized._quantized_data
            decoded = quantized.dequantize(dtype=F32, scale=scale, double_scale=tensors[key + "_scale_2"],
                                           block_sizes={-1: 16})
        else:
            quantized, scale = FP8QTensor.quantize(weight, block_sizes={-1: 128, -2: 128})
            tensors[key] = quantized._quantized_data
            decoded = quantized.dequantize(dtype=F32, scale=scale, block_sizes={-1: 128, -2: 128})
            scale = scale.reshape(rows // 128, 1, columns // 128, 1)
        tensors[key + "_scale"] = scale
        if format.endswith("awq"):
            factor = (torch.rand(columns, generator=generator) + 0.5).to(BF16)
            tensors[name + ".pre_quant_scale"] = factor
            decoded = decoded * factor.float()
        expected_f32[key], expected[key] = decoded, decoded.to(BF16)
    whole, quantization = modelopt_config(algorithm)
    write_config(folder, model.config, {**quantization, "quant_method": "modelopt", "quant_algo": algorithm})
    (folder / "hf_quant_config.json").write_text(json.dumps(whole, indent=4) + "\n")
    save(folder, tensors)
    return expected, expected_f32


# ---------------------------------------------------------------- HQQ, quanto, Quark

for bits in 1, 2, 3, 4, 8:
    for axis in 0, 1:
        scheme(f"hqq_{bits}_axis{axis}", bits=bits, axis=axis)(lambda folder, **how: hqq(folder, **how))


def hqq(folder, bits, axis):
    """The state of HQQLinear, with meta data as tensors. Decoded by its Quantizer, with compute_dtype f32."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
    model = llama(tied=False)
    tensors = state_of(model)
    expected, expected_f32 = dict(tensors), {}
    for name, module in linears(model):
        config = BaseQuantizeConfig(nbits=bits, group_size=32, axis=axis)
        state = HQQLinear(module, config, compute_dtype=F32, device="cpu", del_orig=False).state_dict()
        key = name + ".weight"
        del tensors[key]
        tensors.update({f"{name}.{suffix}": tensor for suffix, tensor in state.items() if suffix != "bias"})
        layer = HQQLinear(None, None, compute_dtype=F32, device="cpu", initialize=False)
        layer.load_state_dict({suffix: tensor.clone() for suffix, tensor in state.items()})
        expected_f32[key] = layer.dequantize().to(F32)
        expected[key] = expected_f32[key].to(BF16)
    write_config(folder, model.config, {"quant_method": "hqq", "quant_config": {"weight_quant_params": {
        "nbits": bits, "group_size": 32, "axis": axis}}})
    save(folder, tensors)
    return expected, expected_f32


@scheme("quanto_int8", weights="qint8")
@scheme("quanto_float8", weights="qfloat8")
def quanto(folder, weights):
    """optimum-quanto: a frozen model's state. Its qint4 does not store the shape of the weight."""
    import optimum.quanto
    model = llama(tied=False)
    optimum.quanto.quantize(model, weights=getattr(optimum.quanto, weights), exclude="lm_head")
    optimum.quanto.freeze(model)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
    expected, expected_f32 = {}, {}
    for name, module in model.named_modules():
        if isinstance(module, optimum.quanto.QLinear):
            key = name + ".weight"
            expected[key] = module.weight.dequantize().detach()
            expected_f32[key] = (module.weight._data.to(F32) * module.weight._scale.to(F32)).detach()
            bf16 = expected_f32[key].to(BF16)  # a row of zeros has the scale 0, and codes of NaN
            assert torch.equal(bf16.nan_to_num(), expected[key].nan_to_num()), name
    write_config(folder, model.config)
    save(folder, tensors)
    return expected, expected_f32


@scheme("quark_uint4", dtype="uint4")
@scheme("quark_int4", dtype="int4")
@scheme("quark_mxfp4", dtype="fp4")
def quark(folder, dtype):
    """AMD Quark: its packer, and its unpacker for the expected values; the scales are computed here."""
    from quark.torch.utils import create_pack_method
    model = llama(tied=False)
    tensors = state_of(model)
    expected, expected_f32 = dict(tensors), {}
    pack = create_pack_method(qscheme="per_group", dtype=dtype)
    for name, module in linears(model):
        key, weight = name + ".weight", module.weight.detach().float()
        rows, columns = weight.shape
        groups = weight.reshape(rows, -1, 32)
        if dtype == "fp4":
            exponent = torch.ceil(torch.log2(groups.abs().amax(-1).clamp(min=2.0 ** -100) / 6))
            values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
            scaled = groups / 2.0 ** exponent[..., None]
            numbers = values[(scaled.abs()[..., None] - values).abs().argmin(-1)] * scaled.sign()
            tensors[key] = pack.pack(numbers.reshape(rows, columns), True)
            tensors[key + "_scale"] = (exponent + 127).to(torch.uint8)
            unpacked = pack.unpack(tensors[key], True).to(F32).reshape(rows, -1, 32)
            decoded = unpacked * 2.0 ** (tensors[key + "_scale"].to(F32) - 127)[..., None]
        else:
            low = groups.amin(-1).clamp(max=0) if dtype == "uint4" else torch.zeros(groups.shape[:2])
            width = groups.amax(-1).clamp(min=0) - low if dtype == "uint4" else groups.abs().amax(-1) * 15 / 7
            scale = (width / 15).clamp(min=1e-6).to(BF16)
            zero = (-low / scale.float()).round().to(torch.int32)
            limits = (0, 15) if dtype == "uint4" else (-8, 7)
            codes = ((groups / scale.float()[..., None]).round() + zero[..., None]).clamp(*limits).to(torch.int32)
            tensors[key] = pack.pack(codes.reshape(rows, columns), True)
            tensors[key + "_scale"] = scale.t().contiguous()
            tensors[key + "_zero_point"] = pack.pack(zero, True)
            unpacked = pack.unpack(tensors[key], True).to(F32).reshape(rows, -1, 32)
            zeros = pack.unpack(tensors[key + "_zero_point"], True).to(F32).reshape(rows, -1)
            decoded = (unpacked - zeros[..., None]) * scale.float()[..., None]
        expected_f32[key] = decoded.reshape(rows, columns)
        expected[key] = expected_f32[key].to(BF16)
    weight = {"dtype": dtype, "qscheme": "per_group", "ch_axis": -1, "group_size": 32, "symmetric": dtype != "uint4",
              "scale_format": "e8m0" if dtype == "fp4" else None, "is_dynamic": False}
    write_config(folder, model.config, {"quant_method": "quark", "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
                                        "global_quant_config": {"weight": weight, "bias": None}, "layer_quant_config": {}})
    save(folder, tensors)
    return expected, expected_f32


# ---------------------------------------------------------------- 9. MLX

@scheme("mlx_2", bits=2)
@scheme("mlx_3", bits=3)
@scheme("mlx_4", bits=4)
@scheme("mlx_4_group32_untied", bits=4, group=32, tied=False)
@scheme("mlx_4_group128", bits=4, group=128, hidden=128, inter=128)
@scheme("mlx_5", bits=5)
@scheme("mlx_6", bits=6)
@scheme("mlx_8", bits=8)
@scheme("mlx_4_f16", bits=4, dtype=F16)
@scheme("mlx_8_f32_bias", bits=8, dtype=F32, bias=True)
@scheme("mlx_mxfp4", bits=4, group=32, mode="mxfp4")
@scheme("mlx_mxfp8", bits=8, group=32, mode="mxfp8")
@scheme("mlx_nvfp4", bits=4, group=16, mode="nvfp4")
@scheme("mlx_mixed", bits=4, mixed=True)
def mlx(folder, bits, group=64, mode="affine", mixed=False, **sizes):
    """mlx-lm quantizes and writes; embeddings too. mx.dequantize gives the values, in the dtype of the scales."""
    import mlx.core as mx
    import numpy
    from mlx_lm.models import llama as mlx_llama
    from mlx_lm.utils import quantize_model, save_config, save_model
    mx.set_default_device(mx.cpu)
    model = llama(**sizes)
    config = json.loads(model.config.to_json_string(use_diff=False))
    config["model_type"], config["dtype"] = "llama", str(model.config.dtype).removeprefix("torch.")
    config["rope_theta"] = 10000.0
    target = mlx_llama.Model(mlx_llama.ModelArgs.from_dict(config))
    kinds = {BF16: mx.bfloat16, F16: mx.float16, F32: mx.float32}
    target.load_weights([(name, mx.array(tensor.float().numpy()).astype(kinds[tensor.dtype]))
                         for name, tensor in state_of(model).items()])
    predicate = (lambda path, module: {"group_size": 32, "bits": 8} if "down_proj" in path else
                 "v_proj" not in path) if mixed else None
    target, config = quantize_model(target, config, group, bits, mode=mode, quant_predicate=predicate)
    save_model(folder, target)
    save_config(config, folder / "config.json")
    stored = mx.load(str(folder / "model.safetensors"))
    to_torch = lambda array: torch.from_numpy(numpy.array(array.astype(mx.float32)))
    back = {mx.bfloat16: BF16, mx.float16: F16, mx.float32: F32}
    expected, expected_f32 = {}, {}
    for name, array in stored.items():
        base, _, part = name.rpartition(".")
        if part in ("scales", "biases") or base + ".scales" not in stored or part != "weight":
            if not (part in ("scales", "biases") and base + ".weight" in stored):
                expected[name] = to_torch(array).to(back[array.dtype])
            continue
        scales, biases = stored[base + ".scales"], stored.get(base + ".biases")
        own = {"mode": "affine", **(config["quantization"].get(base) or
                                    {"group_size": group, "bits": bits, "mode": mode})}
        decoded = mx.dequantize(array, scales, biases, **own)
        expected[name] = to_torch(decoded).to(back[decoded.dtype])
        if mode == "affine":
            decoded = mx.dequantize(array, scales.astype(mx.float32), biases.astype(mx.float32), **own)
        else:
            decoded = mx.dequantize(array, scales, biases, dtype=mx.float32, **own)
        expected_f32[name] = to_torch(decoded)
    return expected, expected_f32


# ---------------------------------------------------------------- the program

def run(name, out):
    function, arguments = SCHEMES[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(7)
    expected, expected_f32 = function(folder, **arguments)
    for suffix, content in ("expected", expected), ("expected_f32", expected_f32):
        path = out / f"{name}.{suffix}.safetensors"
        path.unlink(missing_ok=True)
        if content:
            save_file({key: tensor.detach().contiguous().clone() for key, tensor in sorted(content.items())}, path)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size >> 10} KiB, {len(expected)} logical tensors, f32 {len(expected_f32 or {})}", flush=True)


def main(arguments):
    if arguments[:1] == ["--old"]:
        return ct_old_process(**json.loads(arguments[1]))
    if arguments[:1] == ["--list"]:
        print("\n".join(SCHEMES))
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    torch.set_num_threads(1)
    import transformers
    transformers.logging.disable_progress_bar()
    out = pathlib.Path(arguments[0]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments[1:] or ["*"]
    failed = []
    for name in SCHEMES:
        if name.startswith("ct_old") and OLD not in os.environ:
            print(f"{name}: left out, {OLD} is not set")
        elif any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted):
            try:
                run(name, out)
            except Exception as error:
                import traceback
                traceback.print_exc()
                shutil.rmtree(out / name, ignore_errors=True)
                failed.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    print("\n".join(["failed:"] + failed) if failed else "all written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
