"""Products of MLX: mx.quantize lays out, mx.dequantize decodes."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

mx.set_default_device(mx.cpu)
PACKAGES = ["mlx", "torch"]
DIMENSIONS = {
    "mode": ["affine", "mxfp4", "mxfp8", "nvfp4"],
    "bits": [2, 3, 4, 5, 6, 8],
    "group": [16, 32, 64, 128],
    "dtype": ["bfloat16", "float16", "float32"],
    "shape": [[1, 128], [3, 128], [33, 256], [5, 96], [64, 64], [7, 32], [1, 32], [3, 5, 128], [0, 128], [9, 384]],
    "bias": [False, True],
    "layer": checkpoint.LAYERS + ["model.embed_tokens"],
    "place": ["config.json", "text_config", "absent"],
    "key": ["quantization", "quantization_config"],
    "exception": [None, "own layer", "another layer", "mode absent"],
    "files": checkpoint.FILES,
}
MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}
DTYPES = {"bfloat16": mx.bfloat16, "float16": mx.float16, "float32": mx.float32}


def possible(case):
    if case["place"] == "text_config" and case["key"] == "quantization":  # mlx writes it at the top alone
        return False
    if case["mode"] != "affine":
        fits = (case["bits"], case["group"]) == MODES[case["mode"]] and case["exception"] not in ("mode absent", "own layer")
        return fits and case["dtype"] == "bfloat16" and case["shape"][-1] % case["group"] == 0
    return case["group"] != 16 and case["shape"][-1] % case["group"] == 0


def decode(parts, case):
    codes = mx.array(parts["weight"].numpy())
    how = {"group_size": case["group"], "bits": case["bits"], "mode": case["mode"]}
    if case["mode"] == "affine":
        scales, biases = (mx.array(parts[part].float().numpy()) for part in ("scales", "biases"))
        decoded = mx.dequantize(codes, scales, biases, **how)
    else:
        decoded = mx.dequantize(codes, mx.array(parts["scales"].numpy()), None, dtype=mx.float32, **how)
    return torch.from_numpy(np.array(decoded))


def parts_of(case, random):
    """Random codes; their shapes are those that mx.quantize gives."""
    *rows, columns = case["shape"]
    groups = columns // case["group"]
    parts = {"weight": checkpoint.bits([*rows, columns * case["bits"] // 32], torch.int32, random).view(torch.uint32)}
    dtype = getattr(torch, case["dtype"])
    if case["mode"] == "affine":
        parts["scales"] = checkpoint.scales([*rows, groups], dtype, random)
        parts["biases"] = (torch.randn([*rows, groups], generator=random) * 0.3).to(dtype)
    else:
        low, high = (0, 127) if case["mode"] == "nvfp4" else (1, 250)
        parts["scales"] = torch.randint(low, high, [*rows, groups], generator=random, dtype=torch.uint8)
    if torch.Size(case["shape"]).numel():
        made = mx.quantize(
            mx.zeros(case["shape"], DTYPES[case["dtype"]]), group_size=case["group"], bits=case["bits"], mode=case["mode"]
        )
        assert [list(part.shape) for part in made] == [list(part.shape) for part in parts.values()], case
    return parts


def settings(case):
    own = {"group_size": case["group"], "bits": case["bits"], "mode": case["mode"]}
    other = {"group_size": 64 if case["group"] != 64 else 32, "bits": 8 if case["bits"] != 8 else 4}
    if case["exception"] == "own layer":
        return {**other, "mode": "affine", case["layer"]: {key: own[key] for key in ("group_size", "bits")}}
    if case["exception"] == "another layer":
        return {**own, "model.other": other, "model.plain": False}
    return own if case["exception"] is None else {key: own[key] for key in ("group_size", "bits")}


def write(case, path):
    random = checkpoint.generator(case)
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in parts_of(case, random).items()}
    tensors["norm.weight"] = torch.ones(3, dtype=torch.bfloat16)
    if case["bias"]:
        tensors[case["layer"] + ".bias"] = torch.ones(case["shape"][-2:-1], dtype=torch.bfloat16)
    checkpoint.write(
        path, case, tensors, settings(case), case["place"], {"format": "mlx"}, case["key"], case["files"] == "shards"
    )
    return path, comparison.Expected(content(case, tensors))


def open_to(case):
    """Without a configuration: whether several sizes of groups fit, or the mode is not known."""
    if case["place"] != "absent":
        return False
    groups, row = case["shape"][-1] // case["group"], case["shape"][-1] * case["bits"]
    fit = [size for size in (32, 64, 128) if row % (size * groups) == 0 and row // (size * groups) in (2, 3, 4, 5, 6, 8)]
    return case["mode"] != "affine" or len(fit) > 1


def content(case, tensors):
    tensors, arrays, name = dict(tensors), {}, case["layer"]
    if not open_to(case) and torch.Size(case["shape"]).numel():
        parts = {part: tensors.pop(f"{name}.{part}") for part in ("weight", "scales", "biases") if f"{name}.{part}" in tensors}
        arrays[name + ".weight"] = checkpoint.plain(decode(parts, case))
    return arrays | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
