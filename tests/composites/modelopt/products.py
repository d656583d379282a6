"""Products of NVIDIA ModelOpt: its tensor classes quantize and decode."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from modelopt.torch.export.quant_utils import to_quantized_weight  # noqa: E402
from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor  # noqa: E402
from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor  # noqa: E402
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["nvidia-modelopt", "torch"]
DIMENSIONS = {
    "quant_algo": ["FP8", "NVFP4", "NVFP4_AWQ", "W4A16_AWQ", "MXFP4", "W4A8_MXFP4_FP8", "FP8_PB_WO"],
    "group": [16, 32, 64, 128],
    "shape": [[64, 64], [128, 128], [8, 192], [34, 64], [256, 384], [2, 128], [6, 96]],
    "pre_quant_scale": [None, "bfloat16", "float32"],
    "dtype": ["bfloat16", "float32"],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": ["config.json", "text_config"],
    "mixed": [False, True],  # quantized_layers name the layer's algorithm
    "input_scale": [False, True],
    "files": checkpoint.FILES,
}
GROUPS = {"FP8": 128, "NVFP4": 16, "NVFP4_AWQ": 16, "MXFP4": 32, "W4A8_MXFP4_FP8": 32, "FP8_PB_WO": 128}


def possible(case):
    algorithm, (rows, columns) = case["quant_algo"], case["shape"]
    if case["group"] != GROUPS.get(algorithm, case["group"]) or (case["pre_quant_scale"] and "AWQ" not in algorithm):
        return False
    if algorithm == "FP8_PB_WO":
        return rows % 128 == 0 and columns % 128 == 0
    return columns % case["group"] == 0 or algorithm == "FP8"


def parts_of(case, random):
    rows, columns = case["shape"]
    weight = torch.randn(rows, columns, generator=random) * 0.05
    weight[0] = 0
    algorithm, group = case["quant_algo"], case["group"]
    parts = {}
    if algorithm.startswith("NVFP4"):
        quantized, scale, parts["weight_scale_2"] = NVFP4QTensor.quantize(weight.clone(), 16)
        parts["weight"] = quantized._quantized_data
        decoded = quantized.dequantize(
            dtype=torch.float32, scale=scale, double_scale=parts["weight_scale_2"], block_sizes={-1: 16}
        )
    elif "MXFP4" in algorithm:
        quantized, scale = MXFP4QTensor.quantize(weight, 32)
        parts["weight"], scale = quantized._quantized_data, scale.reshape(rows, -1)
        decoded = quantized.dequantize(dtype=torch.float32, scale=scale, block_sizes={-1: 32})
    elif algorithm == "FP8":
        quantized, scale = FP8QTensor.quantize(weight)
        parts["weight"], scale = quantized._quantized_data, scale.reshape(())
        decoded = quantized.dequantize(dtype=torch.float32, scale=scale)
    elif algorithm == "FP8_PB_WO":
        quantized, scale = FP8QTensor.quantize(weight, block_sizes={-1: 128, -2: 128})
        parts["weight"] = quantized._quantized_data
        decoded = quantized.dequantize(dtype=torch.float32, scale=scale, block_sizes={-1: 128, -2: 128})
        scale = scale.reshape(rows // 128, 1, columns // 128, 1)
    else:
        scale = (weight.reshape(rows, -1, group).abs().amax(-1) / 7).clamp(min=1e-6).to(getattr(torch, case["dtype"]))
        codes = (weight.reshape(rows, -1, group) / scale.float()[..., None]).round().clamp(-8, 7)
        parts["weight"] = to_quantized_weight(
            (codes * scale.float()[..., None]).reshape(rows, columns), scale.float(), "int4_awq", block_size=group
        )
        decoded = (codes * scale.float()[..., None]).reshape(rows, columns)
    parts["weight_scale"] = scale
    signs = torch.tensor(1.0)  # integers have no -0
    if "FP4" in algorithm:
        halves = torch.stack([parts["weight"] & 8, parts["weight"] >> 4 & 8], -1).reshape(rows, columns)
        signs = 1.0 - halves
    elif algorithm.startswith("FP8"):
        signs = parts["weight"].float()
    if case["pre_quant_scale"]:
        factor = (torch.rand(columns, generator=random) + 0.5).to(getattr(torch, case["pre_quant_scale"]))
        parts["pre_quant_scale"] = factor
        decoded = decoded * factor.float()
    return parts, checkpoint.plain(decoded, signs)


def write(case, path):
    random = checkpoint.generator(case)
    parts, decoded = parts_of(case, random)
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in parts.items()}
    rest = {"norm.weight": torch.ones(3)}
    if case["bias"]:
        rest[case["layer"] + ".bias"] = torch.ones(case["shape"][:1], dtype=torch.bfloat16)
    if case["input_scale"]:
        rest[case["layer"] + ".input_scale"] = torch.tensor(0.00229)
    config = {
        "quant_method": "modelopt",
        "quant_algo": case["quant_algo"],
        "kv_cache_quant_algo": None,
        "exclude_modules": ["lm_head"],
    }
    if case["mixed"]:
        config |= {
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {case["layer"]: {"quant_algo": case["quant_algo"], "group_size": case["group"]}},
        }
    checkpoint.write(path, case, tensors | rest, config, case["place"], shards=case["files"] == "shards")
    arrays = {key: checkpoint.content(tensor) for key, tensor in rest.items()}
    WRITTEN[path.name] = {key: checkpoint.content(tensor) for key, tensor in tensors.items()}, decoded
    return path, comparison.Expected(arrays | {case["layer"] + ".weight": decoded})


WRITTEN = {}


def read(path):
    """ModelOpt's classes decode what they quantized alone: equal parts are an equal weight."""
    case = checkpoint.case_of(path)
    parts, decoded = WRITTEN[(path.parent if path.is_file() else path).name]
    arrays = {key: checkpoint.content(tensor) for key, tensor in checkpoint.tensors_of(path).items()}
    assert all(arrays.pop(key) == part for key, part in parts.items())
    return arrays | {case["layer"] + ".weight": decoded}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
