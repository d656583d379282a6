"""Products of .npy and .npz files, by NumPy."""

import io
import json
import sys
import zipfile
from pathlib import Path

import ml_dtypes  # noqa: F401: registers its dtypes
import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["numpy", "ml_dtypes"]
PAGES = ["formats/numpy"]
DIMENSIONS = {
    "file": [".npy", ".npz", ".npz deflated", ".npz appended"],
    "version": [[1, 0], [2, 0], [3, 0]],
    "dtype": ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
              "complex64", "complex128", "float8_e5m2", "float8_e4m3fn", "bfloat16", "S3", "U2", "M8[s]", "m8[D]", "O",
              "longdouble", "record", "S0"],
    "byte order": ["<", ">"],
    "order": ["C", "F", "strided", "broadcast"],
    "shape": [[], [0], [1], [7], [3, 5], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 32, [1] * 64],
    "name": ["weight", "a.b", "a/b", "日本語", "", " x\n", "a\\b", "../up", "w.npy", "x" * 300],
    "members": [0, 1, 9, 101],
}
SPECIAL = [0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF]


def possible(case):
    alone = case["file"] == ".npy"
    if alone and (case["members"] != 1 or case["name"] != "weight"):
        return False
    if case["byte order"] == ">" and case["dtype"] in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "longdouble", "record", "O"):
        return False
    return not (case["dtype"] in ("record", "O") and len(case["shape"]) > 30)  # NumPy's limit for these


def hides(case):
    return case["members"] == 0 or 0 in case["shape"] or not is_typed(case["dtype"])


def is_typed(dtype):
    """Whether NumPy writes the name of a dtype that stele has: it writes V1 and V2 for two of ml_dtypes."""
    return dtype in comparison.NAMES and dtype not in ("bfloat16", "float8_e4m3fn")


def values(case, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    shape, name = case["shape"], case["dtype"]
    count = int(np.prod(shape))
    random = np.random.default_rng(seed)
    if name == "O":
        array = np.full(shape, None, object)
    elif name == "record":
        array = np.zeros(shape, [("a", "<f4"), ("b", "<i2")])
    elif name[0] in "SU" or name[:2] in ("M8", "m8"):
        array = np.zeros(shape, name)
    else:
        dtype = np.dtype(name)
        bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
        if dtype.itemsize == 8 and count > 6:
            bits[:48] = np.frombuffer(np.array(SPECIAL, "<u8").tobytes(), np.uint8)
        if name == "bool":
            bits &= 1
        array = bits.view(dtype).reshape(shape) if name != "longdouble" else np.zeros(shape, dtype)
    if case["byte order"] == ">" and array.dtype.itemsize > 1:
        array = array.astype(array.dtype.newbyteorder(">"))
    match case["order"]:
        case "F":
            array = np.asfortranarray(array)
        case "strided" if array.ndim:
            wide = np.zeros([2 * n for n in shape], array.dtype) if array.ndim < 20 else None
            if wide is not None:
                wide[tuple(slice(None, None, 2) for _ in shape)] = array
                array = wide[tuple(slice(None, None, 2) for _ in shape)]
        case "broadcast" if array.ndim and array.size:
            array = np.broadcast_to(array[:1], shape)
    return array


def npy(array, version):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=tuple(version))
    return file.getvalue()


def write(case, path):
    suffix = case["file"].split()[0]
    path = path.with_suffix(suffix)
    if suffix == ".npy":
        array = values(case, 1)
        path.write_bytes(npy(array, case["version"]))
        return path, expected({path.stem: array}, alone=True)
    names = [case["name"] + (str(i) if i else "") for i in range(case["members"])]
    arrays = {name: values(case, i) for i, name in enumerate(names)}
    how = zipfile.ZIP_DEFLATED if "deflated" in case["file"] else zipfile.ZIP_STORED
    added = [[item] for item in arrays.items()] if "appended" in case["file"] else [arrays.items()]
    np.savez(path)
    for items in added:
        with zipfile.ZipFile(path, "a", how) as file:
            for name, array in items:
                with file.open(name + ".npy", "w", force_zip64=True) as entry:
                    entry.write(npy(array, case["version"]))
    return path, expected(arrays)


def expected(arrays, alone=False):
    """Typed arrays; the others cannot be read: strings, objects, dates, structures, and elements without a type (V1, V2)."""
    typed = {name: array for name, array in arrays.items() if is_typed(array.dtype.name)}
    unread = sorted(arrays.keys() - typed.keys())
    if alone and unread:
        return comparison.Expected(refused="unsupported")
    # A .npy file has no place for the name of a dtype.
    untyped = alone and any(array.dtype.name == "float8_e5m2" for array in arrays.values())
    return comparison.Expected(typed, unread, unwritable="not_representable" if untyped else None)


def read(path):
    if path.suffix == ".npy":
        return {path.stem: np.load(path)}
    with np.load(path) as file:
        own = json.loads(file["__stele__"].tobytes()) if "__stele__" in file.files else {}
        names = own.get("names", {})
        return {names.get(key, key): file[key].view("float8_e5m2") if key in own.get("dtypes", {}) else file[key]
                for key in file.files if key != "__stele__"}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
