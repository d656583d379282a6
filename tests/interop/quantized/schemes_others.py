"""HQQ, quanto, Quark and MLX."""
import json

import torch

from schemes import BF16, F16, F32, linears, llama, save, scheme, state_of, write_config

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
