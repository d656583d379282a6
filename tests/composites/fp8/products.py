"""Products of FP8 with scales of blocks, as DeepSeek and transformers write them; compressed-tensors decodes."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["compressed-tensors", "torch"]
DIMENSIONS = {
    "names": ["weight_scale_inv", "scale", "stack"],  # of DeepSeek, DeepSeek V4, and stacks of experts
    "codes": ["float8_e4m3fn", "float8_e5m2"],
    "scales": ["float32", "bfloat16", "float16", "float8_e8m0fnu", "uint8"],
    "block": [[128, 128], [64, 64], [32, 64], [1, 32], [48, 80], [128, 1], [1, 128], [7, 5], [300, 500]],
    "shape": [[128, 256], [1, 1], [200, 320], [129, 130], [5, 300], [257, 1], [1, 257], [127, 127], [0, 8], [96, 160]],
    "stack": [1, 3, 0],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": ["config.json", "text_config", "absent"],
    "exception": [None, "modules_to_not_convert"],
    "files": checkpoint.FILES,
}


def possible(case):
    if (case["names"] == "stack") != (case["stack"] != 1):
        return False
    if case["names"] == "scale" and case["scales"] != "float8_e8m0fnu":
        return False
    return case["scales"] != "uint8" or case["block"] == [1, 32]


def names_of(case):
    name = case["layer"]
    return {
        "weight_scale_inv": (name + ".weight", name + ".weight_scale_inv"),
        "scale": (name + ".weight", name + ".scale"),
        "stack": (name, name + "_scale_inv"),
    }[case["names"]]


def decode(codes, scales, block):
    if scales.dtype == torch.uint8:
        scales = scales.view(torch.float8_e8m0fnu)
    decoder = FP8BlockDequantizer(weight_block_size=block, dtype=torch.float32)
    if codes.ndim == 3:
        decoded = [decoder._create_dequantized_weight(one, scale) for one, scale in zip(codes, scales)]
        return torch.stack(decoded) if decoded else torch.empty(codes.shape)
    return decoder._create_dequantized_weight(codes, scales)


def grid(shape, block):
    return [-(-n // size) for n, size in zip(shape, block)]


def block_of(case):
    """Return the block that a reader can know: without a configuration DeepSeek's, or the only one that the grid fits."""
    if case["place"] != "absent":
        return case["block"]
    there = grid(case["shape"], case["block"])
    if there == grid(case["shape"], [128, 128]):
        return [128, 128]
    sizes = [
        {size if count > 1 else n for size in range(1, n + 1) if -(-n // size) == count}
        for n, count in zip(case["shape"], there)
    ]
    return [min(one) for one in sizes] if all(len(one) == 1 for one in sizes) else None


def write(case, path):
    random = checkpoint.generator(case)
    shape = ([] if case["names"] != "stack" else [case["stack"]]) + case["shape"]
    codes = checkpoint.bits(shape, getattr(torch, case["codes"]), random)
    there = shape[:-2] + grid(case["shape"], case["block"])
    dtype = getattr(torch, case["scales"])
    if dtype.itemsize == 1:  # exponents
        scales = torch.randint(100, 150, there, generator=random, dtype=torch.uint8).view(dtype)
        if scales.numel() > 2:
            scales.view(torch.uint8).reshape(-1)[:2] = torch.tensor([0, 254])
    else:
        scales = checkpoint.scales(there, dtype, random)
    weight, scale = names_of(case)
    rest = {"norm.weight": torch.ones(3, dtype=torch.bfloat16)}
    if case["bias"]:
        rest[case["layer"] + (".bias" if case["names"] != "stack" else "_bias")] = torch.ones(
            shape[-2:-1], dtype=torch.bfloat16
        )
    config = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": case["block"]}
    if case["exception"]:
        config["modules_to_not_convert"] = ["lm_head", "norm"]
    checkpoint.write(path, case, {weight: codes, scale: scales} | rest, config, case["place"], shards=case["files"] == "shards")
    return path, comparison.Expected(content(case, {weight: codes, scale: scales} | rest))


def content(case, tensors):
    weight, scale = names_of(case)
    block = block_of(case)
    arrays = {name: checkpoint.content(tensor) for name, tensor in tensors.items()}
    if block and tensors[weight].numel():
        del arrays[scale]
        arrays[weight] = checkpoint.plain(decode(tensors[weight], tensors[scale], block))
    return arrays


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
