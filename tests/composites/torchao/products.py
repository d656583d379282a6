"""Products of torchao's tensor classes in safetensors, which torchao quantizes and decodes."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig  # noqa: E402
from torchao.prototype.mx_formats.inference_workflow import NVFP4WeightOnlyConfig  # noqa: E402
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict, unflatten_tensor_state_dict  # noqa: E402
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,  # noqa: E402
    IntxWeightOnlyConfig,
    PerAxis,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from torchao.quantization.quant_primitives import MappingType  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["torchao", "torch"]
DIMENSIONS = {
    "config": ["int8", "int8 dynamic", "float8", "intx", "mxfp8", "mxfp4", "nvfp4"],
    "bits": [1, 2, 3, 4, 5, 6, 7, 8],
    "granularity": ["row", "group", "tensor"],
    "group": [16, 32, 64],
    "mapping": ["symmetric", "asymmetric"],
    "dtype": ["bfloat16", "float32"],
    "shape": [[64, 64], [128, 128], [1, 64], [3, 96], [130, 64], [36, 100], [5, 7], [129, 160], [256, 384]],
    "bias": [False, True],
    "layer": ["model.layers.0.mlp.up_proj", "fc"],
    "place": ["config.json", "absent"],
}


def config_of(case):
    granularity = {"row": PerAxis(0), "group": PerGroup(case["group"]), "tensor": PerTensor()}[case["granularity"]]
    match case["config"]:
        case "int8":
            return Int8WeightOnlyConfig(granularity=PerRow() if case["granularity"] == "row" else granularity)
        case "int8 dynamic":
            return Int8DynamicActivationInt8WeightConfig()
        case "float8":
            return Float8WeightOnlyConfig(granularity=PerRow() if case["granularity"] == "row" else granularity)
        case "intx":
            mapping = MappingType.ASYMMETRIC if case["mapping"] == "asymmetric" else MappingType.SYMMETRIC
            return IntxWeightOnlyConfig(
                weight_dtype=getattr(torch, f"int{case['bits']}"), granularity=granularity, mapping_type=mapping
            )
        case "mxfp8":
            return MXDynamicActivationMXWeightConfig()
        case "mxfp4":
            return MXDynamicActivationMXWeightConfig(
                activation_dtype=torch.float4_e2m1fn_x2, weight_dtype=torch.float4_e2m1fn_x2
            )
    return NVFP4WeightOnlyConfig()


def quantized(case, random):
    rows, columns = case["shape"]
    linear = torch.nn.Linear(columns, rows, bias=case["bias"], dtype=getattr(torch, case["dtype"]))
    with torch.no_grad():
        linear.weight.copy_(torch.randn(rows, columns, generator=random) * 0.05 + 0.001)
        if case["bias"]:
            linear.bias.fill_(1)
    quantize_(linear, config_of(case), filter_fn=lambda module, name: True)
    return linear


def possible(case):
    if case["config"] != "intx" and (case["bits"] != 8 or case["mapping"] != "symmetric"):
        return False
    if (
        case["config"] not in ("intx", "int8")
        and case["granularity"] == "group"
        or case["granularity"] != "group"
        and case["group"] != 32
    ):
        return False
    if case["config"] in ("mxfp8", "mxfp4", "nvfp4", "int8 dynamic") and case["granularity"] != "row":
        return False
    try:
        linear = quantized(case, torch.Generator().manual_seed(1))
        return type(linear.weight.data) is not torch.Tensor and linear.weight.dequantize() is not None
    except Exception:
        return False


def write(case, path):
    linear = quantized(case, checkpoint.generator(case))
    state = {f"{case['layer']}.{key}": tensor for key, tensor in linear.state_dict().items()} | {"norm.weight": torch.ones(3)}
    tensors, metadata = flatten_tensor_state_dict(state)
    checkpoint.write(path, case, tensors, {"quant_method": "torchao"}, case["place"], {"format": "pt", **metadata})
    return path, comparison.Expected(read(path))


def read(path):
    folder = path.parent if path.is_file() else path
    metadata = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            metadata |= opened.metadata()
    state, _ = unflatten_tensor_state_dict(checkpoint.tensors_of(path), metadata)
    arrays = {}
    for name, tensor in state.items():
        if type(tensor) is torch.Tensor:
            arrays[name] = checkpoint.content(tensor)
            continue
        tensor = tensor.detach()
        try:
            decoded = tensor.dequantize(output_dtype=torch.float32)
        except TypeError:  # IntxUnpackedToInt8Tensor: (code - zero) * scale in the dtype of the scale
            codes, size = tensor.qdata.float(), tensor.block_size
            spread = [
                part.float().repeat_interleave(size[0], 0).repeat_interleave(size[1], 1)
                for part in (tensor.scale, tensor.zero_point)
            ]
            decoded = (codes - spread[1]) * spread[0]
            assert torch.equal(decoded.to(tensor.dtype), tensor.dequantize())
        arrays[name] = checkpoint.plain(decoded)
    return arrays


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
