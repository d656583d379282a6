"""Diffusion models and ModelOpt."""
import dataclasses
import json

import torch

from schemes import BF16, F32, FP8, fill, linears, llama, save, scheme, state_of, write_config


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
