"""compressed-tensors."""
import json
import os
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file

from schemes import F16, F32, OLD, grouped, linears, llama, read, save, scheme, state_of, write_config

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
    subprocess.run([sys.executable, pathlib.Path(__file__).with_name("make.py"), "--old", job], env=environment, check=True)
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
