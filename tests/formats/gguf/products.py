"""Products of GGUF files, by gguf-py: its writer, its reader, and its decoding of blocks."""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["gguf", "numpy"]
PAGES = ["formats/gguf"]
PLAIN = {"F32": "f32", "F16": "f16", "F64": "f64", "BF16": "bf16", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64"}
ENCODED = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "mxfp4",
           "nvfp4", "tq1_0", "tq2_0"]
PAIRS = {
    "none": [],
    "unsigned": [("u8", 255, Kind.UINT8), ("u16", 65535, Kind.UINT16), ("u32", 2**32 - 1, Kind.UINT32), ("u64", 2**64 - 1, Kind.UINT64)],
    "signed": [("i8", -128, Kind.INT8), ("i16", -2**15, Kind.INT16), ("i32", -2**31, Kind.INT32), ("i64", -2**63, Kind.INT64)],
    "floats": [("f32", 0.1, Kind.FLOAT32), ("f64", 0.1, Kind.FLOAT64), ("whole", 2.0, Kind.FLOAT32), ("small", 5e-324, Kind.FLOAT64)],
    "not finite": [("nan", math.nan, Kind.FLOAT32), ("inf", math.inf, Kind.FLOAT64), ("-inf", -math.inf, Kind.FLOAT32)],
    "bools": [("yes", True, Kind.BOOL), ("no", False, Kind.BOOL)],
    "strings": [("text", "häuser\n\0日本語", Kind.STRING), ("empty", "", Kind.STRING), ("long", "x" * 70000, Kind.STRING), ("ключ", "a", Kind.STRING)],
    "arrays of integers": [(kind.name, [1, 0, 1], Kind.ARRAY, kind) for kind in (Kind.INT8, Kind.UINT16, Kind.INT16, Kind.UINT32,
                                                                                Kind.INT32, Kind.UINT64, Kind.INT64)],
    "array of bytes": [("bytes", b"\x00\xff", Kind.ARRAY), ("u8", [1, 2], Kind.ARRAY, Kind.UINT8)],
    "arrays of floats": [("f32", [0.1, math.nan], Kind.ARRAY, Kind.FLOAT32), ("f64", [0.1, -math.inf], Kind.ARRAY, Kind.FLOAT64)],
    "array of bools": [("bools", [True, False], Kind.ARRAY, Kind.BOOL)],
    "array of strings": [("tokens", ["", "a", "日本語"] * 334, Kind.ARRAY, Kind.STRING)],
    "array of arrays": [("nested", [[1, 2], [3]], Kind.ARRAY)],
}
DIMENSIONS = {
    "dtype": [*PLAIN, *(kind.name for kind in Type if kind.name not in (*PLAIN, "Q8_1"))],
    "encoded": ["as is", *ENCODED],
    "pairs": list(PAIRS),
    "name": ["weight", "blk.0.a", "a/b", "日本語", "", " x\n", "x" * 60, "x" * 300],
    "shape": [[3], [], [0], [2], [2, 3], [0, 3], [1, 2, 3], [2, 1, 3, 1]],  # the last axis in blocks
    "version": [3, 2],
    "byte order": ["little", "big"],
    "alignment": [None, 8, 64, 4096],
    "members": [1, 0, 9, 101],
    "files": ["one", "set"],
}


def possible(case):
    return all([
        case["encoded"] == "as is" or case["dtype"] == "F32" and case["byte order"] == "little" and case["members"] < 100,
        case["encoded"] == "as is" or case["shape"] and 0 not in case["shape"] and case["pairs"] != "array of arrays",
        case["shape"] or case["dtype"] in PLAIN and case["dtype"] != "BF16",  # gguf-py has it as bytes
        case["files"] == "one" or case["members"] in (9, 101) and case["byte order"] == "little",
        case["files"] == "one" or case["alignment"] is None,  # gguf-py writes it to the first file alone, and cannot read the others
        case["name"] != "x" * 300 or case["encoded"] == "as is",
        len(case["name"]) < 60 or case["members"] < 100,
    ])


def data(case, seed):
    """Random bits; random numbers if they are to be encoded."""
    kind, shape = Type[case["dtype"]], case["shape"]
    random = np.random.default_rng(seed)
    if case["encoded"] != "as is":
        return random.standard_normal([*shape[:-1], shape[-1] * 256], np.float32)
    count, width = gguf.GGML_QUANT_SIZES[kind]
    plain = {"F32": "f4", "F16": "f2", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8"}.get(kind.name)
    bits = random.integers(0, 256, math.prod(shape) * width, np.uint8)
    return bits.view(plain).reshape(shape) if plain else bits.reshape([*shape[:-1], (shape or [1])[-1] * width])


def write(case, path):
    file = path.with_suffix(".gguf")
    if case["files"] == "set":
        path.mkdir()
        file = path / "model.gguf"
    gguf.gguf_writer.GGUF_VERSION = case["version"]
    order = gguf.GGUFEndian.BIG if case["byte order"] == "big" else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(file, "test", endianess=order, split_max_tensors=2 if case["files"] == "set" else 0)
    for pair in PAIRS[case["pairs"]]:
        writer.add_key_value(*pair)
    if case["alignment"]:
        writer.add_custom_alignment(case["alignment"])
    for i in range(case["members"]):
        array = data(case, i)
        writer.add_tensor(case["name"] + (str(i) if i else ""), array, raw_dtype=Type[case["dtype"]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (path if case["files"] == "set" else file), expected(case, path if case["files"] == "set" else file)


def readers(path):
    return [gguf.GGUFReader(file) for file in (sorted(path.iterdir()) if path.is_dir() else [path])]


def content(tensor):
    """A tensor of gguf-py's reader as (dtype of stele, shape, bytes)."""
    name = PLAIN.get(tensor.tensor_type.name) or tensor.tensor_type.name.lower().replace("_k", "_K")
    return name, [int(n) for n in reversed(tensor.shape)], tensor.data.tobytes()


def coded(value):
    """A value as `inspect --json` shows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$f64": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def pairs(reader):
    import base64
    found = {}
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "split.")):
            continue
        value = field.contents()
        if field.types[0] == Kind.ARRAY and field.types[1] == Kind.UINT8:
            found[key] = {"$bytes": base64.b64encode(bytes(value)).decode()}
        else:
            found[key] = list(map(coded, value)) if isinstance(value, list) else coded(value)
    return found


KEPT = {}


def expected(case, path):
    if case["byte order"] == "big":
        return comparison.Expected(refused="unsupported")
    if case["pairs"] == "array of arrays":
        return comparison.Expected(refused="unsupported")
    all_files = readers(path)
    tensors = {tensor.name: content(tensor) for reader in all_files for tensor in reader.tensors}
    metadata = {key: value for reader in all_files for key, value in pairs(reader).items()}
    KEPT[path.with_suffix(".gguf").name] = case, path
    return comparison.Expected(tensors, metadata=metadata, unwritable="not_representable" if any(len(n) > 63 for n in tensors) else None)


def target(path):
    return path.parent / "back" / path.with_suffix(".gguf").name


def convert(path, to, *options):
    subprocess.run([sys.argv[1], "convert", "-q", path, to, "--allow-loss", *options], check=True, stdin=subprocess.DEVNULL)


def decoded(path):
    """The f32 numbers that stele finds in a file, by a safetensors file."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        file = Path(folder) / "x.safetensors"
        convert(path, file, "--precision", "f32")
        text = file.read_bytes()
    size = int.from_bytes(text[:8], "little")
    head = json.loads(text[8:8 + size])
    return {name: np.frombuffer(text[8 + size:][slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
            for name, entry in head.items() if name != "__metadata__"}


def same_numbers(path, tensors):
    """The numbers of blocks, by gguf-py; it makes other NaN."""
    found = None
    for tensor in tensors:
        if tensor.n_elements == 0 or tensor.tensor_type.name in ("Q8_K", "Q1_0", "F64") or tensor.tensor_type.name[0] == "I" and tensor.tensor_type.name[1] != "Q":
            continue  # gguf-py decodes none of these
        found = decoded(path) if found is None else found
        with np.errstate(all="ignore"):
            wanted = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(tensor.shape[::-1])
        mine = found[tensor.name]
        equal = (wanted.view(np.uint32) == mine.view(np.uint32)) | np.isnan(wanted) & np.isnan(mine)
        assert equal.all(), f"{tensor.name}: {tensor.tensor_type.name}: other numbers: {mine[~equal][:3]} instead of {wanted[~equal][:3]}"


def encoded(case, path, tensors):
    """What stele encodes has the bytes of gguf-py's encoder, if it has one, and gguf-py decodes it to stele's numbers."""
    kind = Type[case["encoded"].upper()]
    to = path.parent / "encoded.gguf"
    convert(path, to, "--precision", case["encoded"])
    written = {tensor.name: tensor for tensor in readers(to)[0].tensors}
    same_numbers(to, written.values())
    for tensor in tensors:
        mine = written[tensor.name]
        block = len(tensor.shape) > 1 or case["encoded"] in ("f16", "bf16")
        assert mine.tensor_type == (kind if block else Type.F32), f"{tensor.name}: {mine.tensor_type.name}"
        if not block:
            continue
        try:
            wanted = gguf.quantize(tensor.data, kind)
        except NotImplementedError:
            continue  # gguf-py has no encoder
        assert wanted.tobytes() == mine.data.tobytes(), f"{tensor.name}: other bytes of {case['encoded']} than gguf-py encodes"
    os.unlink(to)


def read(path):
    case, source = KEPT[path.name]
    own = [tensor for reader in readers(source) for tensor in reader.tensors]
    same_numbers(source, own)
    if case["encoded"] != "as is":
        encoded(case, source, own)
    (reader,) = readers(path)
    before = {key: value for one in readers(source) for key, value in pairs(one).items()}
    assert json.dumps(pairs(reader), sort_keys=True) == json.dumps(before, sort_keys=True), f"{pairs(reader)} instead of {before}"
    return {tensor.name: content(tensor) for tensor in reader.tensors}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
