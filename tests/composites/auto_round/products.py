"""Products of auto-round's own packings: its layers decode."""

import sys
from pathlib import Path
from unittest import mock

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["auto-round", "torch"]
DIMENSIONS = {
    "bits": [2, 3, 4, 5, 6, 7, 8],
    "packing": [
        "auto_round",
        "auto_round:gptqmodel",
        "auto_round:auto_gptq",
        "auto_round:exllamav2",
        "auto_round:gptq:exllamav2",
    ],
    "key": ["packing_format", "backend"],
    "group": [-1, 16, 32, 64],
    "zero points": ["random", "symmetric"],
    "shape": [[32, 32], [64, 96], [32, 160], [96, 64], [160, 32]],
    "scales": ["float16", "bfloat16", "float32"],
    "g_idx": [False, True],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": ["config.json", "text_config", "quantize_config.json"],
    "exception": [None, "own layer", "another layer", "expression"],
    "files": checkpoint.FILES,
}
PARTS = "qweight", "qzeros", "scales", "g_idx"


def less_one(case):
    return "gptq" in case["packing"] and "gptqmodel" not in case["packing"]


def possible(case):
    if case["group"] > 0 and case["shape"][1] % case["group"]:
        return False
    if case["packing"].endswith("exllamav2") and case["key"] == "packing_format":
        return False
    return not (case["packing"] == "auto_round:gptqmodel" and case["key"] == "backend") and decodes(case)


def decodes(case):
    """Whether auto-round's layer takes such sizes."""
    try:
        decode(parts_of(case, torch.Generator()), case)
    except RuntimeError:
        return False
    return True


def decode(parts, case):
    module = qlinear_torch_zp if less_one(case) else qlinear_torch
    rows, columns = case["shape"]
    layer = module.QuantLinear(
        case["bits"], case["group"], columns, rows, False, g_idx="g_idx" in parts, weight_dtype=torch.float32
    )
    layer.device = "cpu"
    layer.load_state_dict(parts)
    layer.scales = parts["scales"].float()
    with mock.patch.object(torch, "matmul", lambda inputs, weight: weight):  # a product would lose the sign of zeros
        return layer(torch.eye(columns)).t().contiguous()


def settings(case):
    config = {
        "bits": case["bits"],
        "group_size": case["group"],
        "sym": case["zero points"] == "symmetric",
        "data_type": "int",
        "quant_method": "auto-round",
        case["key"]: case["packing"],
        "autoround_version": "0.16.1" if case["key"] != "backend" else "0.4.7",
    }
    own = {"bits": case["bits"], "group_size": case["group"]}
    other = {"bits": 4 if case["bits"] != 4 else 2, "group_size": 128}
    match case["exception"]:
        case "own layer":
            config |= {**other, "extra_config": {case["layer"]: own}}
        case "expression":
            config |= {**other, "extra_config": {".*" + case["layer"][-1] + "$": own}}
        case "another layer":
            config["extra_config"] = {"model.layers.7.other": other}
    return config


def symmetric(case, words):
    bits = case["bits"]
    field = 2 ** (bits - 1) - less_one(case)
    row = format(field, f"0{bits}b")[::-1] * (words[1] * 32 // bits)
    return (
        torch.tensor([int(row[i : i + 32][::-1], 2) for i in range(0, len(row), 32)], dtype=torch.uint32)
        .view(torch.int32)
        .expand(words)
        .clone()
    )


def parts_of(case, random):
    rows, columns = case["shape"]
    group = columns if case["group"] == -1 else case["group"]
    words = [columns // group, rows // 32 * case["bits"]]
    parts = {
        "qweight": checkpoint.bits([columns // 32 * case["bits"], rows], torch.int32, random),
        "qzeros": symmetric(case, words) if case["zero points"] == "symmetric" else zeros(case, words, random),
        "scales": checkpoint.scales([columns // group, rows], getattr(torch, case["scales"]), random),
    }
    if case["g_idx"]:
        parts["g_idx"] = torch.arange(columns, dtype=torch.int32) // group
    return parts


def write(case, path):
    parts = parts_of(case, checkpoint.generator(case))
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in parts.items()} | {"norm.weight": torch.ones(3)}
    if case["bias"]:
        tensors[case["layer"] + ".bias"] = torch.ones(case["shape"][:1], dtype=torch.float16)
    checkpoint.write(path, case, tensors, settings(case), case["place"], shards=case["files"] == "shards")
    return path, comparison.Expected(content(case, tensors))


def zeros(case, words, random):
    """Random zero points. Less one, the largest field is kept free: auto-round's decoder and GPTQ's differ there."""
    bits, (groups, count) = case["bits"], words
    fields = torch.randint(0, 2**bits - less_one(case), [groups, count * 32 // bits], generator=random)
    rows = []
    for row in fields.tolist():
        text = "".join(format(field, f"0{bits}b")[::-1] for field in row)
        rows.append([int(text[i : i + 32][::-1], 2) for i in range(0, len(text), 32)])
    return torch.tensor(rows, dtype=torch.uint32).view(torch.int32)


def content(case, tensors):
    tensors, name = dict(tensors), case["layer"]
    parts = {part: tensors.pop(f"{name}.{part}") for part in PARTS if f"{name}.{part}" in tensors}
    arrays = {name + ".weight": checkpoint.plain(decode(parts, case))}
    return arrays | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
