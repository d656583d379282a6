"""Products of safetensors' files, by the package safetensors."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import safetensors
from safetensors import TensorSpec, serialize

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["safetensors", "numpy"]
PAGES = ["formats/safetensors"]
# dtype of the writer -> (in the file, in stele, bits)
DTYPES = {
    "bool": ("BOOL", "bool", 8), "uint8": ("U8", "u8", 8), "int8": ("I8", "i8", 8), "uint16": ("U16", "u16", 16),
    "int16": ("I16", "i16", 16), "uint32": ("U32", "u32", 32), "int32": ("I32", "i32", 32), "uint64": ("U64", "u64", 64),
    "int64": ("I64", "i64", 64), "float16": ("F16", "f16", 16), "bfloat16": ("BF16", "bf16", 16),
    "float32": ("F32", "f32", 32), "float64": ("F64", "f64", 64), "complex64": ("C64", "c64", 64),
    "float8_e5m2": ("F8_E5M2", "f8_e5m2", 8), "float8_e4m3fn": ("F8_E4M3", "f8_e4m3fn", 8),
    "float8_e8m0fnu": ("F8_E8M0", "f8_e8m0", 8), "float8_e4m3fnuz": ("F8_E4M3FNUZ", "f8_e4m3fnuz", 8),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", "f8_e5m2fnuz", 8), "float4_e2m1fn_x2": ("F4", "f4_e2m1", 4),
    "F6_E2M3": ("F6_E2M3", "f6_e2m3", 6), "F6_E3M2": ("F6_E3M2", "f6_e3m2", 6),
}
DIMENSIONS = {
    "dtype": list(DTYPES) + ["I4"],
    "second dtype": ["uint8", "float64", "bool", "float4_e2m1fn_x2"],
    "shape": [[], [0], [1], [8], [3, 16], [2, 0, 4], [4, 3, 2, 2], [1] * 64 + [4]],
    "tensors": [0, 1, 9, 1001],
    "name": ["weight", "a.b", "a/b", "日本語", "", " x\n", "a\\b", "../up", "\u0000", "x" * 300, '"', "0"],
    "metadata": ["none", "empty", "one", "several", "Unicode", "JSON text"],
    "header": ["as written", "spaces", "not a multiple of 8", "spaced JSON", "other order of keys", "escaped names"],
    "order": ["as written", "by name", "reversed"],
    "files": ["one", "shards and index", "shards without index", "one with index"],
}
METADATA = {"none": None, "empty": {}, "one": {"format": "pt"}, "several": {"format": "pt", "b": "two", "a": "one", "": "x"},
            "Unicode": {"Ä": "日本\n\"\\", "k" * 300: "v" * 3000}, "JSON text": {"config": "{\"a\": [1, null]}", "n": "seven"}}


def possible(case):
    bits = 4 if case["dtype"] == "I4" else DTYPES[case["dtype"]][2]
    if math.prod(case["shape"]) * bits % 8:
        return False  # safetensors refuses a part of a byte
    if case["dtype"] == "float4_e2m1fn_x2" and not case["shape"]:
        return False
    needed = {"one": 0, "one with index": 1}.get(case["files"], 2)  # files without tensors are refused in a set
    return case["tensors"] >= needed


def hides(case):
    return case["dtype"] == "I4" or case["files"] == "shards without index" or case["tensors"] == 0


def bytes_of(dtype, shape, seed):
    bits = 4 if dtype == "I4" else DTYPES[dtype][2]
    data = np.random.default_rng(seed).integers(0, 256, math.prod(shape) * bits // 8, np.uint8)
    return (data & 1 if dtype == "bool" else data).tobytes()


def entries(case):
    """name -> (dtype, shape, bytes)"""
    found = {}
    for i in range(case["tensors"]):
        dtype = case["dtype"] if i % 3 != 1 else case["second dtype"]
        shape = case["shape"] if i % 2 == 0 or case["tensors"] > 9 else [4, 2]
        if math.prod(shape) * (4 if dtype == "I4" else DTYPES[dtype][2]) % 8 or (dtype == "float4_e2m1fn_x2" and not shape):
            shape = [2, 4]
        found[case["name"] + (str(i) if i else "")] = (dtype, shape, bytes_of(dtype, shape, i))
    return found


def document(tensors, metadata, case):
    """A header in another form than the package's, which the package reads: the same content."""
    names = list(tensors)
    if case["order"] == "by name":
        names.sort(key=str.encode)
    elif case["order"] == "reversed":
        names.reverse()
    offset, header, data = 0, {}, b""
    for name in names:
        dtype, shape, content = tensors[name]
        ends = [offset, offset + len(content)]
        fields = {"dtype": DTYPES.get(dtype, ("I4",))[0], "shape": shape, "data_offsets": ends}
        if case["header"] == "other order of keys":
            fields = dict(reversed(fields.items()))
        header[name] = fields
        offset = ends[1]
        data += content
    if metadata is not None:
        header = header | {"__metadata__": metadata} if case["header"] == "other order of keys" else {
            "__metadata__": metadata} | header
    separators = (" , ", " : ") if case["header"] == "spaced JSON" else (",", ":")
    text = json.dumps(header, separators=separators, ensure_ascii=case["header"] == "escaped names").encode()
    if case["header"] == "spaces":
        text += b" " * 40
    elif case["header"] != "not a multiple of 8":
        text += b" " * (-len(text) % 8)
    elif len(text) % 8 == 0:
        text += b" "
    return len(text).to_bytes(8, "little") + text + data


def file_of(tensors, metadata, case):
    own = case["header"] == "as written" and case["order"] == "as written" and all(
        dtype[:2] not in ("F6", "I4") for dtype, _, _ in tensors.values())
    if not own:
        return document(tensors, metadata, case)
    alive = {name: np.frombuffer(data, np.uint8) for name, (_, _, data) in tensors.items()}
    # The package's shape of F4 counts bytes.
    specs = {name: TensorSpec(dtype=dtype, shape=shape[:-1] + [shape[-1] // 2] if dtype == "float4_e2m1fn_x2" else shape,
                              data_ptr=alive[name].ctypes.data, data_len=len(data))
             for name, (dtype, shape, data) in tensors.items()}
    return serialize(specs, metadata=metadata)


def by_package(path):
    """What the package reads: tensors, metadata."""
    tensors = {}
    for name, entry in safetensors.deserialize(path.read_bytes()):
        stele = {file: ours for file, ours, _ in DTYPES.values()}[entry["dtype"]]
        tensors[name] = (stele, list(entry["shape"]), bytes(entry["data"]))
    size = int.from_bytes(path.read_bytes()[:8], "little")
    return tensors, json.loads(path.read_bytes()[8:8 + size]).get("__metadata__") or {}


def write(case, path):
    tensors, metadata = entries(case), METADATA[case["metadata"]]
    files = case["files"]
    if files == "one":
        parts = {path.with_suffix(".safetensors"): tensors}
        opened = next(iter(parts))
    else:
        path.mkdir()
        opened = path
        names = list(tensors)
        count = 1 if files == "one with index" else 2
        parts = {path / f"model-{i + 1:05}-of-{count:05}.safetensors": {name: tensors[name] for name in names[i::count]}
                 for i in range(count)}
        if "without" not in files:
            index = {"metadata": {"total_size": sum(len(data) for _, _, data in tensors.values())},
                     "weight_map": {name: file.name for file, part in parts.items() for name in part}}
            (path / "model.safetensors.index.json").write_text(json.dumps(index))
    for file, part in parts.items():
        file.write_bytes(file_of(part, metadata, case))
    if any(dtype == "I4" for dtype, _, _ in tensors.values()):
        return opened, comparison.Expected(refused="unsupported")  # the package refuses the file, too
    if files == "shards without index":
        return opened, comparison.Expected(refused="unsupported")
    found, properties = {}, {}
    for file in parts:
        read_tensors, properties = by_package(file)
        found |= read_tensors
    if files != "one":  # the index has no metadata of the user's, and a set always gets the format
        properties = {key: value for key, value in properties.items() if key != "format"}
    return opened, comparison.Expected(found, metadata=properties)


def target(path):
    return path.parent / "back" / (path.name.split(".")[0] + ".safetensors")


def read(path):
    return by_package(Path(path))[0]


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
