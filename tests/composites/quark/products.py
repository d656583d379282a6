"""Products of AMD Quark: its packers pack and unpack."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from quark.torch.utils import create_pack_method  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["amd-quark", "torch"]
DIMENSIONS = {
    "dtype": ["int4", "uint4", "fp4"],
    "pack_method": ["reorder", "order", None],
    "group": [16, 32, 128],
    "zero points": [False, True],
    "shape": [[8, 32], [64, 64], [16, 128], [40, 96], [8, 160], [24, 256]],
    "scales": ["bfloat16", "float16", "float32"],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": ["config.json", "text_config"],
    "exception": [None, "own layer", "another layer"],
    "files": checkpoint.FILES,
}


def possible(case):
    if case["dtype"] == "fp4":
        return (
            case["group"] == 32 and not case["zero points"] and case["shape"][1] % 32 == 0 and case["pack_method"] == "reorder"
        )
    return case["shape"][1] % case["group"] == 0 and (case["zero points"] or case["dtype"] == "int4")


def pack_of(case):
    return create_pack_method(qscheme="per_group", dtype=case["dtype"])


def parts_of(case, random):
    rows, columns = case["shape"]
    groups, pack, reorder = columns // case["group"], pack_of(case), case["pack_method"] != "order"
    if case["dtype"] == "fp4":
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        numbers = values[torch.randint(0, 8, [rows, columns], generator=random)] * (
            torch.randint(0, 2, [rows, columns], generator=random) * 2 - 1
        )
        return {
            "weight": pack.pack(numbers, True),
            "weight_scale": torch.randint(1, 250, [rows, groups], generator=random, dtype=torch.uint8),
        }
    low, high = (0, 16) if case["dtype"] == "uint4" else (-8, 8)
    parts = {
        "weight": pack.pack(torch.randint(low, high, [rows, columns], generator=random, dtype=torch.int32), reorder),
        "weight_scale": checkpoint.scales([groups, rows], getattr(torch, case["scales"]), random),
    }
    if case["zero points"]:
        zeros = torch.randint(low, high, [rows, groups], generator=random, dtype=torch.int32)
        parts["weight_zero_point"] = pack.pack(zeros if case["dtype"] == "uint4" else zeros * 0, reorder)
    return parts


def decode(parts, case):
    rows, columns = case["shape"]
    pack, group = pack_of(case), case["group"]
    codes = pack.unpack(parts["weight"], True).float().reshape(rows, -1, group)
    if case["dtype"] == "fp4":
        return (codes * torch.ldexp(torch.tensor(1.0), parts["weight_scale"].float() - 127)[..., None]).reshape(rows, columns)
    if "weight_zero_point" in parts:
        codes = codes - pack.unpack(parts["weight_zero_point"], True).float().reshape(rows, -1)[..., None]
    return (codes * parts["weight_scale"].float().t()[..., None]).reshape(rows, columns)


def write(case, path):
    random = checkpoint.generator(case)
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in parts_of(case, random).items()} | {
        "norm.weight": torch.ones(3)
    }
    if case["bias"]:
        tensors[case["layer"] + ".bias"] = torch.ones(case["shape"][:1], dtype=torch.bfloat16)
    weight = {
        "dtype": case["dtype"],
        "qscheme": "per_group",
        "ch_axis": -1,
        "group_size": case["group"],
        "symmetric": case["dtype"] != "uint4",
        "scale_format": "e8m0" if case["dtype"] == "fp4" else None,
        "is_dynamic": False,
    }
    other = {**weight, "dtype": "int8"}
    layers = {"own layer": {case["layer"]: {"weight": weight}}, "another layer": {"*other*": {"weight": other}}}.get(
        case["exception"], {}
    )
    config = {
        "quant_method": "quark",
        "export": {"pack_method": case["pack_method"], "weight_format": "real_quantized"},
        "global_quant_config": {"weight": other if case["exception"] == "own layer" else weight, "bias": None},
        "layer_quant_config": layers,
    }
    if case["pack_method"] is None:
        del config["export"]
    checkpoint.write(path, case, tensors, config, case["place"], shards=case["files"] == "shards")
    return path, comparison.Expected(content(case, tensors))


def content(case, tensors):
    tensors, arrays, name = dict(tensors), {}, case["layer"]
    if case["pack_method"] != "order":  # refused
        parts = {key.removeprefix(name + "."): tensors.pop(key) for key in list(tensors) if key.startswith(name + ".weight")}
        arrays[name + ".weight"] = checkpoint.plain(decode(parts, case))
    return arrays | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
