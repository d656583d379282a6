"""GPTQ, AWQ and auto-round."""
import importlib.util
import json
import pathlib
import sys
import types

import torch

from schemes import BF16, F16, F32, grouped, linears, llama, read, save, scheme, state_of, write_config

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
