"""Products of GPTQ, by gptqmodel: its layer decodes."""

import os
import re
import sys
from pathlib import Path

os.environ.update(
    GPTQMODEL_DISABLE_PACK_EXT="1", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", TQDM_DISABLE="1", LOGURU_LEVEL="ERROR"
)
sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from gptqmodel.nn_modules.qlinear.torch import TorchLinear  # noqa: E402
from gptqmodel.quantization import FORMAT  # noqa: E402
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["gptqmodel", "torch"]
DIMENSIONS = {
    "bits": [2, 3, 4, 5, 6, 7, 8],
    "format": ["gptq", "gptq_v2", "gptq_p", None],
    "group": [-1, 16, 32, 64, 128],
    "columns' order": ["sorted", "permuted"],
    "zero points": ["symmetric", "random"],
    "shape": [[32, 32], [64, 96], [96, 160], [16, 40], [8, 200], [24, 8], [40, 16], [1, 64], [33, 72], [7, 31], [64, 1]],
    "scales": ["float16", "bfloat16", "float32"],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": checkpoint.PLACES + ["absent"],
    "exception": [None, "own layer", "another layer"],
    "files": checkpoint.FILES,
}
PARTS = "qweight", "qzeros", "scales", "g_idx"


def linear(case):
    rows, columns = case["shape"]
    return TorchLinear(
        bits=case["bits"],
        group_size=case["group"],
        sym=case["zero points"] == "symmetric",
        desc_act=case["columns' order"] == "permuted",
        in_features=columns,
        out_features=rows,
        bias=False,
        format=FORMAT(case["format"] or "gptq"),
        register_buffers=True,
    )


def possible(case):
    wide = case["bits"] in (5, 6, 7)
    if wide != (case["format"] == "gptq_p") and not (case["bits"] == 3 and case["format"] == "gptq_p"):
        return False
    if case["bits"] in (3, 5, 6, 7) and any(n % 32 for n in case["shape"]):
        return False
    try:
        linear(case)
    except Exception:
        return False
    return True


def decode(parts, case):
    layer = linear(case)
    layer.load_state_dict({part: parts[part] for part in PARTS})
    if (case["format"] or "gptq") == "gptq":
        convert_gptq_v1_to_v2_format_module(layer, case["bits"], torch.int32)
    layer.scales = parts["scales"].float()  # a load makes them f16
    return layer.eval().dequantize_weight().T.contiguous()


def settings(case):
    """quantize_config.json as gptqmodel writes it, or AutoGPTQ if no format is named."""
    config = {
        "bits": case["bits"],
        "group_size": case["group"],
        "desc_act": case["columns' order"] == "permuted",
        "sym": case["zero points"] == "symmetric",
        "quant_method": "gptq",
    }
    if case["format"]:
        config |= {"checkpoint_format": case["format"], "format": case["format"], "pack_dtype": "int32"}
    elif case["place"] == "quantize_config.json":
        del config["quant_method"]
    if case["exception"] == "own layer":
        config |= {"bits": 4 if case["bits"] != 4 else 8, "dynamic": {"+:" + re.escape(case["layer"]): {"bits": case["bits"]}}}
    elif case["exception"]:
        config["dynamic"] = {"-:.*lm_head": {}, "+:.*other.*": {"bits": 8 if case["bits"] != 8 else 4, "group_size": 24}}
    return config


def write(case, path):
    random = checkpoint.generator(case)
    layer = linear(case)
    rows, columns = case["shape"]
    parts = {part: getattr(layer, part) for part in PARTS}
    group = case["group"] if case["group"] > 0 else columns
    parts["qweight"] = checkpoint.bits(parts["qweight"].shape, torch.int32, random)
    parts["scales"] = checkpoint.scales(parts["scales"].shape, getattr(torch, case["scales"]), random)
    order = torch.randperm(columns, generator=random) if case["columns' order"] == "permuted" else torch.arange(columns)
    parts["g_idx"] = torch.empty(columns, dtype=torch.int32)
    parts["g_idx"][order] = torch.arange(columns, dtype=torch.int32) // group
    if case["zero points"] == "random":
        parts["qzeros"] = checkpoint.bits(parts["qzeros"].shape, torch.int32, random)
    else:
        parts["qzeros"] = symmetric(case, parts["qzeros"])
    name = case["layer"]
    tensors = {f"{name}.{part}": tensor for part, tensor in parts.items()}
    rest = {"norm.weight": torch.ones(3)}
    if case["bias"]:
        rest[name + ".bias"] = checkpoint.scales([rows], torch.float16, random)
    checkpoint.write(path, case, tensors | rest, settings(case), case["place"], shards=case["files"] == "shards")
    expected = {key: checkpoint.content(tensor) for key, tensor in rest.items()}
    if decided(case, parts):
        expected[name + ".weight"] = checkpoint.plain(decode(parts, case))
    else:
        expected |= {key: checkpoint.content(tensor) for key, tensor in tensors.items()}
    return path, comparison.Expected({key: value for key, value in expected.items()})


def symmetric(case, words):
    """The middle of the codes, in the fields of words; planes have 1 in the highest plane alone."""
    bits, middle = case["bits"], 2 ** (case["bits"] - 1)
    field = middle - 1 if (case["format"] or "gptq") == "gptq" else middle
    if case["format"] == "gptq_p":
        high = {3: 1, 5: 1, 6: 2, 7: 1}[bits]  # bits of the highest plane
        plane = [0] * (bits - high) + [sum((1 << high - 1) << i for i in range(0, 32, high))] * high
        row = plane * (words.shape[1] // bits)
    else:
        text = "".join(format(field, f"0{bits}b")[::-1] for _ in range(case["shape"][0])).ljust(words.shape[1] * 32, "0")
        row = [int(text[i : i + 32][::-1], 2) for i in range(0, len(text), 32)]
    return torch.tensor(row, dtype=torch.int64).to(torch.uint32).view(torch.int32).expand(words.shape).clone()


def decided(case, parts):
    """Without a configuration: one number of bits fits the shapes, and symmetric zero points show how they are stored."""
    if case["place"] != "absent":
        return True
    rows, columns = case["shape"]
    words = parts["qweight"].shape[0], parts["qzeros"].shape[1]
    fit = [b for b in range(2, 9) if (-(-columns * b // 32), -(-rows * b // 32)) == words]
    return len(fit) == 1 and case["format"] != "gptq_p" and case["zero points"] == "symmetric"


def read(path):
    case = checkpoint.case_of(path)
    tensors = checkpoint.tensors_of(path)
    name = case["layer"]
    parts = {part: tensors.pop(f"{name}.{part}") for part in PARTS}
    arrays = {key: checkpoint.content(tensor) for key, tensor in tensors.items()}
    if decided(case, parts):
        arrays[name + ".weight"] = checkpoint.plain(decode(parts, case))
    else:
        arrays |= {f"{name}.{part}": checkpoint.content(tensor) for part, tensor in parts.items()}
    return {key: value for key, value in arrays.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
