"""Products of HQQ, which quantizes and decodes on the CPU."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["hqq", "torch"]
DIMENSIONS = {
    "bits": [1, 2, 3, 4, 8],
    "group": [8, 16, 32, 64, None],
    "axis": [0, 1],
    "shape": [[8, 32], [64, 64], [3, 64], [32, 1], [1, 64], [5, 96], [40, 24], [33, 160], [7, 9]],
    "view as float": [False, True],
    "dtype": ["float32", "float16", "bfloat16"],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": ["config.json", "absent"],
    "files": checkpoint.FILES,
}


def settings(case):
    return BaseQuantizeConfig(
        nbits=case["bits"], group_size=case["group"], axis=case["axis"], view_as_float=case["view as float"]
    )


def layer_of(case, random):
    rows, columns = case["shape"]
    linear = torch.nn.Linear(columns, rows, bias=case["bias"])
    with torch.no_grad():
        linear.weight.copy_(torch.randn(rows, columns, generator=random) * 0.05)
        if case["bias"]:
            linear.bias.fill_(1)
    return HQQLinear(linear, settings(case), compute_dtype=getattr(torch, case["dtype"]), device="cpu", del_orig=False)


def possible(case):
    try:
        layer_of(case, checkpoint.generator(case)).dequantize()
    except Exception:
        return False
    return True


def write(case, path):
    state = layer_of(case, checkpoint.generator(case)).state_dict()
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in state.items()}
    tensors["norm.weight"] = torch.ones(3)
    config = {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": case["bits"], "group_size": case["group"], "axis": case["axis"]}},
    }
    checkpoint.write(path, case, tensors, config, case["place"], shards=case["files"] == "shards")
    return path, comparison.Expected(content(case, tensors))


def content(case, tensors):
    name, tensors, arrays = case["layer"], dict(tensors), {}
    bias = tensors.pop(name + ".bias", None)
    state = {key.removeprefix(name + "."): tensors.pop(key).clone() for key in list(tensors) if key.startswith(name + ".")}
    if bias is not None:
        state["bias"] = bias.clone()
        arrays[name + ".bias"] = checkpoint.content(bias)
    layer = HQQLinear(None, None, compute_dtype=torch.float32, device="cpu", initialize=False)
    layer.load_state_dict(state)
    layer.meta["compute_dtype"] = torch.float32
    for part in "scale", "zero":
        layer.meta[part] = layer.meta[part].float()
    arrays[name + ".weight"] = checkpoint.plain(layer.dequantize().float())
    return arrays | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
