"""Products of bitsandbytes, which quantizes and decodes on the CPU."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from bitsandbytes.functional import QuantState, dequantize_4bit, int8_vectorwise_dequant, quantize_4bit  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["bitsandbytes", "torch"]
DIMENSIONS = {
    "type": ["nf4", "fp4", "int8"],
    "nested": [False, True],
    "block size": [64, 128, 256, 512, 1024, 2048, 4096],
    "storage": ["uint8", "bfloat16", "float16", "float32"],
    "dtype": ["bfloat16", "float16", "float32"],
    "shape": [[64, 64], [1, 1], [3, 5], [7, 129], [1, 8192], [4, 16], [5], [3, 8, 24], [33, 100], [1, 2], [2, 8196], [0, 4]],
    "bias": [False, True],
    "layer": checkpoint.LAYERS + ["experts.gate_up_proj"],
    "place": ["config.json", "text_config", "absent"],
    "weight_format": [None, 0, 1, 3],
    "model": ["llama", "gpt2"],
    "files": checkpoint.FILES,
}


def possible(case):
    if case["type"] == "int8":
        return (
            len(case["shape"]) == 2
            and not case["nested"]
            and case["block size"] == 64
            and case["storage"] == "uint8"
            and case["layer"] != "experts.gate_up_proj"
            and case["shape"][0] > 0
        )
    if case["weight_format"] is not None or 0 in case["shape"]:
        return False
    count = torch.Size(case["shape"]).numel()
    return (count + 1) // 2 % getattr(torch, case["storage"]).itemsize == 0


def weight_of(case):
    return case["layer"] if case["layer"] == "experts.gate_up_proj" else case["layer"] + ".weight"


def write(case, path):
    random = checkpoint.generator(case)
    name = weight_of(case)
    weight = torch.randn(case["shape"], generator=random) * 0.05
    weight.reshape(-1)[:70] = 0  # a whole block
    weight = weight.to(getattr(torch, case["dtype"]))
    if case["type"] == "int8":
        codes = checkpoint.bits(case["shape"], torch.int8, random)
        tensors = {
            name: codes,
            case["layer"] + ".SCB": checkpoint.scales(case["shape"][:1], torch.float32, random, positive=True),
        }
        if case["weight_format"] is not None:
            tensors[case["layer"] + ".weight_format"] = torch.tensor(case["weight_format"], dtype=torch.uint8)
    else:
        codes, state = quantize_4bit(
            weight,
            blocksize=case["block size"],
            compress_statistics=case["nested"],
            quant_type=case["type"],
            quant_storage=getattr(torch, case["storage"]),
        )
        tensors = {name: codes} | {f"{name}.{part}": tensor for part, tensor in state.as_dict(packed=True).items()}
    tensors["norm.weight"] = torch.ones(3, dtype=torch.bfloat16)
    if case["bias"]:
        tensors[name + "_bias" if name == case["layer"] else case["layer"] + ".bias"] = torch.ones(
            case["shape"][:1], dtype=torch.bfloat16
        )
    config = {
        "_load_in_4bit": case["type"] != "int8",
        "_load_in_8bit": case["type"] == "int8",
        "bnb_4bit_quant_type": case["type"],
        "bnb_4bit_quant_storage": case["storage"],
        "bnb_4bit_use_double_quant": case["nested"],
        "quant_method": "bitsandbytes",
    }
    checkpoint.write(path, case, tensors, config, case["place"], shards=case["files"] == "shards", model=case["model"])
    return path, comparison.Expected(content(case, tensors))


def content(case, tensors):
    name, tensors, arrays = weight_of(case), dict(tensors), {}
    if case["type"] != "int8":
        parts = {key.removeprefix(name + "."): tensors.pop(key) for key in list(tensors) if key.startswith(name + ".")}
        state = QuantState.from_dict(parts, device="cpu")
        state.dtype = torch.float32
        decoded = dequantize_4bit(tensors.pop(name), state).reshape(case["shape"])  # codes of one byte are taken for transposed
        # The decoder has -0 for the code 8 of fp4, but quant_map +0.
        arrays[name] = checkpoint.plain(decoded, torch.tensor(1.0) if case["type"] == "fp4" else None)
    elif case["weight_format"] in (None, 0):  # other orders are those of GPUs
        tensors.pop(case["layer"] + ".weight_format", None)
        scb = tensors.pop(case["layer"] + ".SCB")
        arrays[name] = checkpoint.plain(int8_vectorwise_dequant(tensors.pop(name), scb))
    return arrays | {key: checkpoint.content(tensor) for key, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
