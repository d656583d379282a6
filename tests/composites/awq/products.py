"""Products of AWQ, by autoawq: its dequantize_gemm decodes."""

import importlib.util
import sys
import types
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402

# autoawq's modules without its package code, which does not start with transformers 5.
root = Path(importlib.util.find_spec("awq").submodule_search_locations[0])
for name in "awq", "awq.modules", "awq.modules.linear", "awq.models", "awq.utils":
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(root.joinpath(*name.split(".")[1:]))]
sys.modules["awq.modules.triton"] = None
from awq.utils.packing_utils import dequantize_gemm  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["autoawq", "torch"]
DIMENSIONS = {
    "format": ["gemm", "GEMM", "exllama", "ipex", "gemv", "marlin", None],  # "version" of AWQ
    "group": [-1, 16, 32, 64, 128],
    "zero points": ["random", "zero"],
    "shape": [[8, 32], [64, 64], [16, 1], [8, 7], [40, 96], [128, 128], [24, 160], [8, 128]],
    "scales": ["float16", "bfloat16", "float32"],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": checkpoint.PLACES + ["absent"],
    "keys": ["bits", "w_bit"],  # of transformers, and of autoawq's own quant_config
    "files": checkpoint.FILES,
}
PARTS = "qweight", "qzeros", "scales"


def possible(case):
    return case["group"] == -1 or case["shape"][1] % case["group"] == 0


def write(case, path):
    random = checkpoint.generator(case)
    rows, columns = case["shape"]
    groups = 1 if case["group"] == -1 else columns // case["group"]
    parts = {
        "qweight": checkpoint.bits([columns, rows // 8], torch.int32, random),
        "qzeros": checkpoint.bits([groups, rows // 8], torch.int32, random),
        "scales": checkpoint.scales([groups, rows], getattr(torch, case["scales"]), random),
    }
    if case["zero points"] == "zero":
        parts["qzeros"].zero_()
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in parts.items()}
    tensors["norm.weight"] = torch.ones(3)
    if case["bias"]:
        tensors[case["layer"] + ".bias"] = torch.ones(rows, dtype=torch.float16)
    names = {"bits": ("bits", "group_size"), "w_bit": ("w_bit", "q_group_size")}[case["keys"]]
    config = {names[0]: 4, names[1]: case["group"], "zero_point": True, "quant_method": "awq", "modules_to_not_convert": None}
    if case["format"]:
        config["version"] = case["format"]
    checkpoint.write(path, case, tensors, config, case["place"], shards=case["files"] == "shards")
    return path, comparison.Expected(content(case, tensors))


def content(case, tensors):
    tensors, arrays, name = dict(tensors), {}, case["layer"]
    # gemv and marlin have other words.
    if case["place"] == "absent" or case["format"] not in ("gemv", "marlin"):
        parts = {part: tensors.pop(f"{name}.{part}") for part in PARTS}
        group = case["shape"][1] if case["group"] == -1 else case["group"]
        weight = dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].float(), 4, group)
        arrays[name + ".weight"] = checkpoint.plain(weight.T.contiguous())
    return arrays | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
