"""Products of compressed-tensors: its compressors decode."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "products")]
import torch  # noqa: E402
from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.compressors.mx_utils import decompress_mx_scale  # noqa: E402
from compressed_tensors.compressors.mxfp6.helpers import unpack_fp6_from_uint8  # noqa: E402
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8  # noqa: E402
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import dequantize  # noqa: E402

import checkpoint  # noqa: E402
import comparison  # noqa: E402

PACKAGES = ["compressed-tensors", "torch"]
DIMENSIONS = {
    "format": [
        "pack-quantized",
        "int-quantized",
        "float-quantized",
        "naive-quantized",
        "nvfp4-pack-quantized",
        "mxfp4-pack-quantized",
        "mxfp6-pack-quantized",
        "mxfp8-quantized",
    ],
    "bits": [1, 2, 3, 4, 5, 6, 7, 8],
    "strategy": ["tensor", "channel", "group", "block"],
    "group": [16, 24, 32, 128],
    "block": [[128, 128], [48, 64], [7, 5], [1, 32]],
    "zero points": ["symmetric", "random"],
    "scales": ["bfloat16", "float16", "float32"],
    "shape": [[1, 32], [3, 48], [36, 100], [64, 64], [7, 96], [129, 144], [5, 256], [33, 160], [2, 7], [1, 1], [8, 128]],
    "bias": [False, True],
    "layer": checkpoint.LAYERS,
    "place": ["config.json", "text_config", "compression_config", "absent"],
    "targets": ["Linear", "name", "re:", "two groups"],
    "files": checkpoint.FILES,
}
FLOATS = {"nvfp4-pack-quantized": 16, "mxfp4-pack-quantized": 32, "mxfp6-pack-quantized": 32, "mxfp8-quantized": 32}


def possible(case):
    rows, columns = case["shape"]
    format = case["format"]
    if format in FLOATS:
        bits = {"nvfp4-pack-quantized": 4, "mxfp4-pack-quantized": 4, "mxfp6-pack-quantized": 6, "mxfp8-quantized": 8}[format]
        return (
            case["bits"] == bits
            and case["strategy"] == "group"
            and case["zero points"] == "symmetric"
            and columns % FLOATS[format] == 0
            and case["group"] == FLOATS[format]
        )
    if case["strategy"] == "group" and columns % case["group"]:
        return False
    if format == "pack-quantized":
        return case["strategy"] != "block" and (case["zero points"] == "symmetric" or case["strategy"] != "tensor")
    if case["bits"] != 8 or (format == "float-quantized" and case["zero points"] == "random"):
        return False
    return True


def scheme(case):
    format = case["format"]
    floating = format in FLOATS or format == "float-quantized"
    how = {"strategy": case["strategy"]}
    if format in FLOATS:
        how = {"strategy": "tensor_group" if format.startswith("nv") else "group", "group_size": FLOATS[format]}
        if not format.startswith("nv"):
            how["scale_dtype"] = torch.uint8
    elif case["strategy"] == "group":
        how["group_size"] = case["group"]
    elif case["strategy"] == "block":
        how["block_structure"] = case["block"]
    args = QuantizationArgs(
        num_bits=case["bits"], type="float" if floating else "int", symmetric=case["zero points"] == "symmetric", **how
    )
    return QuantizationScheme(targets=["Linear"], weights=args, format=format)


def grid(case):
    rows, columns = case["shape"]
    match case["strategy"]:
        case "tensor":
            return [1]
        case "channel":
            return [rows, 1]
        case "group":
            return [rows, columns // (FLOATS.get(case["format"]) or case["group"])]
    return [-(-rows // case["block"][0]), -(-columns // case["block"][1])]


def parts_of(case, random):
    rows, columns = case["shape"]
    format, bits, there = case["format"], case["bits"], grid(case)
    parts = {"weight_scale": checkpoint.scales(there, getattr(torch, case["scales"]), random)}
    if format == "pack-quantized":
        parts["weight_packed"] = checkpoint.bits([rows, -(-columns * bits // 32)], torch.int32, random)
        parts["weight_shape"] = torch.tensor([rows, columns])
    elif format in FLOATS:
        packed = format != "mxfp8-quantized"
        width = columns * bits // 8
        parts["weight_packed" if packed else "weight"] = checkpoint.bits(
            [rows, width], torch.uint8 if packed else torch.float8_e4m3fn, random
        )
        if format.startswith("nv"):
            parts["weight_scale"] = torch.randint(0, 127, there, generator=random, dtype=torch.uint8).view(torch.float8_e4m3fn)
            parts["weight_global_scale"] = torch.tensor([437.5])
        else:
            parts["weight_scale"] = torch.randint(1, 250, there, generator=random, dtype=torch.uint8)
    else:
        dtype = torch.float8_e4m3fn if format == "float-quantized" else torch.int8
        parts["weight"] = checkpoint.bits([rows, columns], dtype, random)
    if case["zero points"] == "random":
        low = -(2 ** (bits - 1))
        zeros = torch.randint(low, -low, there, generator=random, dtype=torch.int8)
        packed = format == "pack-quantized" and case["strategy"] in ("group", "channel")
        parts["weight_zero_point"] = pack_to_int32(zeros, bits, packed_dim=0) if packed else zeros
    return parts


def decode(parts, case):
    """The decoder of the format, with scales of f32, in which it then computes."""
    how, format = scheme(case), case["format"]
    if format not in FLOATS:
        decoder = BaseCompressor.get_value_from_registry(format)
        if (
            case["format"] == "pack-quantized" and case["zero points"] == "random"
        ):  # unpack_from_int32 fails for [1, 2], whose transpose has the stride 2
            zeros = torch.atleast_2d(parts["weight_zero_point"]).mT
            parts = {**parts, "weight_zero_point": zeros.flatten().clone().reshape(zeros.shape).mT}
        return decoder.decompress({**parts, "weight_scale": parts["weight_scale"].float()}, how)["weight"]
    rows, columns = case["shape"]
    codes = parts.get("weight")
    if codes is None:
        codes = (unpack_fp6_from_uint8 if "mxfp6" in format else unpack_fp4_from_uint8)(parts["weight_packed"], rows, columns)
    scale = parts["weight_scale"]
    scale = scale.float() if format.startswith("nv") else decompress_mx_scale(scale).float()
    return dequantize(
        x_q=codes, scale=scale, args=how.weights, dtype=torch.float32, global_scale=parts.get("weight_global_scale")
    )


def only_size(extent, groups):
    sizes = {size if groups > 1 else extent for size in range(1, extent + 1) if -(-extent // size) == groups}
    return sizes.pop() if len(sizes) == 1 else 0


def known(case):
    """Return the case as a reader without the configuration can know it; None if the shapes leave it open."""
    if case["place"] != "absent" or case["format"] in FLOATS:
        return case
    rows, columns = case["shape"]
    if case["format"] == "pack-quantized":
        words = -(-columns * case["bits"] // 32)
        widths = {bits for bits in range(1, 9) if -(-columns * bits // 32) == words}
        if len(widths) > 1:
            return None
    there = grid(case)
    if case["strategy"] in ("tensor", "channel", "group") or there == [1, 1]:
        return case
    size = [only_size(rows, there[0]), only_size(columns, there[1])]
    if there[0] == rows and columns % there[1] == 0:
        size = [1, columns // there[1]]
    return {**case, "block": size} if all(size) else None


def configuration(case):
    weights = scheme(case).weights.model_dump(mode="json")
    target = {"Linear": "Linear", "name": case["layer"], "re:": "re:.*" + case["layer"][-1] + "$", "two groups": case["layer"]}[
        case["targets"]
    ]
    one = {
        "targets": [target],
        "weights": weights,
        "input_activations": None,
        "output_activations": None,
        "format": case["format"],
    }
    groups = {"group_0": one}
    if case["targets"] == "two groups":
        other = {
            **weights,
            "num_bits": 8 if case["bits"] != 8 else 4,
            "strategy": "group",
            "group_size": 8,
            "block_structure": None,
        }
        groups = {"group_0": {**one, "targets": ["Linear"], "weights": other}, "group_1": one}
    return {
        "config_groups": groups,
        "format": case["format"],
        "global_compression_ratio": None,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "sparsity_config": {},
        "transform_config": {},
        "version": "0.20.0",
    }


def write(case, path):
    random = checkpoint.generator(case)
    tensors = {f"{case['layer']}.{part}": tensor for part, tensor in parts_of(case, random).items()}
    tensors["norm.weight"] = torch.ones(3, dtype=torch.bfloat16)
    if case["bias"]:
        tensors[case["layer"] + ".bias"] = torch.ones(case["shape"][:1], dtype=torch.bfloat16)
    place, key = case["place"], "quantization_config"
    if place == "compression_config":
        place, key = "config.json", place
    checkpoint.write(path, case, tensors, configuration(case), place, key=key, shards=case["files"] == "shards")
    return path, comparison.Expected(content(case, tensors))


def content(case, tensors):
    tensors = dict(tensors)
    arrays, own = {}, known(case)
    if own:
        prefix = case["layer"] + ".weight"
        parts = {name.removeprefix(case["layer"] + "."): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        arrays[prefix] = checkpoint.plain(decode(parts, own))
    return arrays | {name: checkpoint.content(tensor) for name, tensor in tensors.items()}


if __name__ == "__main__":
    checkpoint.main(sys.modules[__name__])
