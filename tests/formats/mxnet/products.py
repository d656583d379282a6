"""Products of MXNet's lists of arrays, by MXNet."""

import contextlib
import math
import struct
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["mxnet", "numpy"]
FILES = 24
PAGES = ["formats/mxnet"]
COMPARED = ["annotations"]
NUMBERS = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]  # by their numbers in a file
PREFIXES = {"none": [""], "arg:": ["arg:"], "aux:": ["aux:"], "arg: and aux:": ["arg:", "aux:"], "some": ["", "aux:"],
            "equal names": ["arg:", "aux:"], "twice": ["arg:aux:"]}
DIMENSIONS = {
    "version": [2, 3, 1, 0],
    "container": ["dict", "list"],
    "dtype": NUMBERS,
    "storage": ["dense", "row_sparse", "csr", "row_sparse, not computed", "csr, not computed"],
    "shape": [[3, 5], [1], [7], [1, 4, 1], [2, 3, 4, 5], [300, 2], [1] * 32, [], [0], [2, 0, 3]],
    "prefix": list(PREFIXES),
    "name": ["weight", "a.b", "a/b", "日本語", "😀", "", "a b", "a\\b", "x" * 300, "0", "arg:", "moving_mean"],
    "arrays": [1, 9, 101, 0],
}


def possible(case):
    sparse = case["storage"] != "dense"
    shape = case["shape"]
    return all([
        case["version"] == 3 or shape and 0 not in shape,  # of unknown shape, without NumPy's semantics
        not sparse or case["version"] == 2 and case["dtype"] != "bool",
        not case["storage"].startswith("csr") or len(shape) == 2,
        not case["storage"].startswith("row_sparse") or 2 <= len(shape) < 5,
        case["container"] == "dict" or case["prefix"] == "none" and case["name"] == "weight",
        case["prefix"] != "equal names" or case["arrays"] > 1,
    ])


def hides(case):
    return case["arrays"] == 0 or 0 in case["shape"] or case["storage"] != "dense" and case["arrays"] == 1


def values(case, seed):
    """Random bits, with NaN payloads and denormals among them; sparse arrays store few rows."""
    dtype = np.dtype(case["dtype"])
    bits = np.random.default_rng(seed).integers(0, 256, math.prod(case["shape"]) * dtype.itemsize, np.uint8)
    array = (bits & 1 if dtype.kind == "b" else bits).view(dtype).reshape(case["shape"])
    if is_sparse(case, seed):
        array = np.zeros(case["shape"], dtype)
        array[-1] = 3
    return array


def is_sparse(case, i):
    return case["storage"] != "dense" and i % 2 == 0


def names_of(case):
    prefixes, stem = PREFIXES[case["prefix"]], case["name"]
    names = []
    for i in range(case["arrays"]):
        number = i // 2 if case["prefix"] == "equal names" else i
        names.append(prefixes[i % len(prefixes)] + stem + (str(number) if number else ""))
    return names


@contextlib.contextmanager
def numpy_semantics(version):
    """NumPy's semantics, with which MXNet writes version 3."""
    if version == 3:
        mx.npx.set_np()
    try:
        yield
    finally:
        if version == 3:
            mx.npx.reset_np()


def array_of(case, i):
    if case["version"] == 3:
        return mx.np.array(values(case, i), dtype=case["dtype"])
    array = mx.nd.array(values(case, i), dtype=case["dtype"])
    if is_sparse(case, i):
        array = array.tostype(case["storage"].split(",")[0])
        array.wait_to_read()
    return array


def old_file(case, names):
    """A file of a version that MXNet 1.9 only reads."""
    shape, data = case["shape"], struct.pack("<QQQ", 0x112, 0, case["arrays"])
    for i in range(case["arrays"]):
        if case["version"] == 1:
            data += struct.pack(f"<Ii{len(shape)}q", 0xF993FAC8, len(shape), *shape)
        else:
            data += struct.pack(f"<{len(shape) + 1}I", len(shape), *shape)
        data += struct.pack("<3i", 1, 0, NUMBERS.index(case["dtype"])) + values(case, i).tobytes()
    stored = names if case["container"] == "dict" else []
    data += struct.pack("<Q", len(stored))
    return data + b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name in stored)


def without_shapes(case, data):
    """The file without the shapes of the stored elements: MXNet writes it if it saves an array that is not yet computed."""
    shape = case["shape"]
    stored = (shape[1],) if case["storage"].startswith("csr") else (1, *shape[1:])
    kind = 2 if case["storage"].startswith("csr") else 1
    head = struct.pack(f"<Iii{len(stored)}q", 0xF993FAC9, kind, len(stored), *stored)
    empty = struct.pack("<Iii", 0xF993FAC9, kind, len(stored)) + bytes(8 * len(stored))
    assert data.count(head) == (case["arrays"] + 1) // 2
    return data.replace(head, empty)


def write(case, path):
    path = path.with_suffix(".params")
    names = names_of(case)
    if case["version"] < 2:
        path.write_bytes(old_file(case, names))
    else:
        with numpy_semantics(case["version"]):
            arrays = [array_of(case, i) for i in range(case["arrays"])]
            save = mx.npx.save if case["version"] == 3 else mx.nd.save
            save(str(path), dict(zip(names, arrays)) if case["container"] == "dict" else arrays)
    if "not computed" in case["storage"]:
        path.write_bytes(without_shapes(case, path.read_bytes()))
    loaded = load(path)
    bare = paths(loaded)
    notes = {bare[key]: {"mxnet.prefix": key[:3]} for key in loaded if bare[key] != key}
    dense = {bare[key]: array for key, (array, stype) in loaded.items() if stype == "default"}
    unread = tuple(bare[key] for key, (_, stype) in loaded.items() if stype != "default")
    return path, comparison.Expected(dense, unread, annotations={name: notes[name] for name in notes if name in dense})


def load(path):
    """Return {name: (array, storage type)} by MXNet; the names of a list are its numbers."""
    version = 3 if struct.pack("<I", 0xF993FACA) in path.read_bytes()[24:28] else 2
    with numpy_semantics(version):
        loaded = (mx.npx.load if version == 3 else mx.nd.load)(str(path))
        items = loaded.items() if isinstance(loaded, dict) else ((str(i), array) for i, array in enumerate(loaded))
        return {name: (array.asnumpy(), getattr(array, "stype", "default")) for name, array in items}


def paths(names):
    """Return {name in the file: stele's}: without the prefix, unless names would be equal."""
    bare = {name: name[4:] if name[:4] in ("arg:", "aux:") else name for name in names}
    return bare if len(set(bare.values())) == len(bare) else {name: name for name in names}


def read(path):
    loaded, before = load(path), load(path.parent.parent / path.name)
    kept = {name for name, (_, stype) in before.items() if stype == "default"}
    assert loaded.keys() == kept, f"other names: {sorted(loaded.keys() ^ kept)}"
    bare = paths(before)
    return {bare[name]: array for name, (array, _) in loaded.items()}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
