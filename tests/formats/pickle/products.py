"""Products of pickles of NumPy's arrays, by Python's pickler and joblib."""

import collections
import decimal
import pickle
import sys
from pathlib import Path

import joblib
import ml_dtypes  # noqa: F401: registers its dtypes
import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

PACKAGES = ["numpy", "ml_dtypes", "joblib"]
PAGES = ["formats/pickle"]
COMPARED = ["metadata", "values"]
NUMBERS = ["float32", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float64", "complex64",
           "complex128"]
OWN = ["float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "bfloat16"]  # of ml_dtypes
OTHERS = ["int4", "S3", "U2", "M8[s]", "m8[D]", "O", "longdouble", "record"]
KEYS = {"(1, 'a')": (1, "a"), "b'w'": b"w", "None": None, "1.5": 1.5, "True": True}  # that are not names
DIMENSIONS = {
    "program": ["pickle", "pickle in Python", "joblib", "joblib zlib", "joblib gzip", "joblib bz2", "joblib lzma", "joblib xz"],
    "protocol": [4, 5, 3, 2, 1, 0],
    "dtype": NUMBERS + OWN + OTHERS,
    "byte order": ["<", ">"],
    "order": ["C", "F", "strided", "reversed", "broadcast"],
    "shape": [[3, 5], "scalar", [], [0], [1], [7], [2, 0, 3], [1, 4, 1], [2, 3, 4, 5], [1] * 64],
    "container": ["dict", "OrderedDict", "defaultdict", "list", "tuple", "dict of dicts", "dict of lists", "list of dicts", "array"],
    "key": ["weight", "a.b", "日本語", "", " x\n", "a/b", "x" * 300, 7, -1, *KEYS],
    "members": [1, 0, 9, 101],
    "shared": ["none", "array", "container", "views of one array"],
    "values": ["none", "numbers", "strings", "containers", "another class"],
}
PLAIN = ("dtype", "byte order", "order", "shape", "members", "shared")
SPECIAL = [0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1, 0x8000000000000000, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF]
VALUES = {"numbers": {"step": 7, "rate": 0.5, "flag": True, "none": None, "large": 1 << 63, "negative": -3},
          "strings": {"name": "é", "empty": "", "long": "x" * 5000},
          "containers": {"list": [1, [2, "a"]], "tuple": (1, 2), "no": {}, "table": {"x": 1}},
          "another class": {"price": decimal.Decimal("1.5")}}


def possible(case):
    keyed = "dict" in case["container"].lower()
    if case["container"] == "array" and (case["members"] != 1 or case["values"] != "none" or case["shared"] != "none"):
        return False
    if not keyed and (case["key"] != "weight" or case["values"] != "none"):
        return False
    if case["byte order"] == ">" and case["dtype"] not in NUMBERS:
        return False
    if case["shape"] == "scalar" and (case["dtype"] in OTHERS or case["order"] != "C" or case["byte order"] == ">"):
        return False
    if case["dtype"] in OTHERS and len(case["shape"]) > 30:
        return False
    if case["program"] == "pickle in Python" and case["protocol"] == 5:
        return False  # it fails: it remembers the addresses of temporary copies (CPython 3.11)
    refused = [case["program"].startswith("joblib"), case["protocol"] < 2, case["key"] in KEYS, case["values"] == "another class"]
    if sum(refused) > 1 or any(refused) and any(case[name] != DIMENSIONS[name][0] for name in PLAIN):
        return False  # a case that is refused proves nothing else
    return case["members"] != 0 or case["shared"] == "none" and case["key"] == "weight"


def array_of(case, seed):
    """Random bits, with NaN payloads, infinities and denormals in the wide types."""
    name = case["dtype"]
    shape = [] if case["shape"] == "scalar" else case["shape"]
    count = int(np.prod(shape))
    if name == "O":
        array = np.full(shape, None, object)
    elif name == "record":
        array = np.zeros(shape, [("a", "<f4"), ("b", "<i2")])
    elif name in OTHERS:
        array = np.zeros(shape, name)
    else:
        dtype = np.dtype(name)
        bits = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8)
        if dtype.itemsize == 8 and count > 6:
            bits[:48] = np.frombuffer(np.array(SPECIAL, "<u8").tobytes(), np.uint8)
        if name == "bool":
            bits &= 1
        array = bits.view(dtype).reshape(shape)
    if case["byte order"] == ">" and array.dtype.itemsize > 1:
        array = array.astype(array.dtype.newbyteorder(">"))
    if case["shape"] == "scalar":
        return array[()]
    match case["order"]:
        case "F":
            array = np.asfortranarray(array)
        case "strided" if array.ndim and array.ndim < 20:
            wide = np.zeros([2 * n for n in shape], array.dtype)
            wide[tuple(slice(None, None, 2) for _ in shape)] = array
            array = wide[tuple(slice(None, None, 2) for _ in shape)]
        case "reversed" if array.ndim:
            array = array[::-1]
        case "broadcast" if array.ndim and array.size:
            array = np.broadcast_to(array[:1], shape)
    return array


def content(case):
    arrays = [array_of(case, i) for i in range(case["members"])]
    match case["shared"]:
        case "array":
            arrays.append(arrays[0])
        case "views of one array" if case["shape"] != "scalar":
            arrays.append(arrays[0][...])
    key = KEYS.get(case["key"], case["key"])
    keys = [key if i == 0 else f"{key}{i}" for i in range(len(arrays))]
    table = dict(zip(keys, arrays)) | VALUES.get(case["values"], {})
    match case["container"]:
        case "dict":
            made = table
        case "OrderedDict":
            made = collections.OrderedDict(table)
        case "defaultdict":
            made = collections.defaultdict(list, table)
        case "list":
            made = arrays
        case "tuple":
            made = tuple(arrays)
        case "dict of dicts":
            made = {"outer": table}
        case "dict of lists":
            made = {"outer": arrays} | table
        case "list of dicts":
            made = [table, {}]
        case "array":
            made = arrays[0]
    if case["shared"] == "container":
        made = {"one": made, "two": made}
    return made


def write(case, path):
    path = path.with_suffix(".pkl")
    made = content(case)
    if case["program"] == "pickle":
        path.write_bytes(pickle.dumps(made, case["protocol"]))
    elif case["program"] == "pickle in Python":
        with open(path, "wb") as file:
            pickle._Pickler(file, case["protocol"]).dump(made)
    else:
        method = case["program"].partition(" ")[2]
        joblib.dump(made, path, compress=(method, 3) if method else 0, protocol=case["protocol"])
    return path, expected(case, joblib.load(path), path.stem)


def flat(prefix, item, arrays, values):
    """Add the arrays and values of nested containers by their names."""
    if isinstance(item, (np.ndarray, np.generic)):
        arrays[prefix] = np.asarray(item)
        return
    table = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, (list, tuple)) else ()
    below, rest = {}, {}
    for key, value in table:
        flat(f"{prefix}.{key}" if prefix else str(key), value, below, rest)
    if below or not prefix or isinstance(item, dict) and item:
        arrays |= below
        values |= rest
    else:
        values[prefix] = plain(item)


def plain(item):
    return [plain(one) for one in item] if isinstance(item, (list, tuple)) else item


def expected(case, loaded, stem):
    if case["program"].startswith("joblib "):
        return comparison.Expected(refused="bad_magic")
    if case["protocol"] < 2:
        return comparison.Expected(refused="bad_magic")
    arrays, values = {}, {}
    flat("", loaded, arrays, values)
    if case["container"] == "array":
        arrays = {stem: np.asarray(loaded)}
    if case["program"] == "joblib" and has_wrapper(case, arrays):
        return comparison.Expected(refused="unsupported")
    if case["values"] == "another class" or case["key"] in KEYS and case["members"]:
        return comparison.Expected(refused="unsupported")
    if len({str(key) for key in arrays} | set(values)) != len(arrays) + len(values):
        return comparison.Expected(refused="duplicate")
    typed = {name: array for name, array in arrays.items() if array.dtype.name in comparison.NAMES}
    return comparison.Expected(typed, sorted(arrays.keys() - typed.keys()), values=values)


def has_wrapper(case, arrays):
    """joblib stores arrays apart from the pickle, but not NumPy's scalars."""
    return case["shape"] != "scalar" and bool(arrays)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
