"""Products of Flax's files, by flax.serialization."""

import base64
import collections
import math
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
import flax.serialization  # noqa: E402
import flax.struct  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402, F401: registers its dtypes
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax.core import FrozenDict  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

jax.config.update("jax_enable_x64", True)
PACKAGES = ["flax", "jax", "optax", "ml_dtypes", "numpy"]
PAGES = ["formats/flax"]
COMPARED = ["metadata", "values"]
NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
           "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz",
           "float8_e5m2fnuz"]
OTHERS = ["int4", "uint4", "int2", "float8_e4m3", "float8_e3m4", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "S3", "U2",
          "datetime64[s]"]
DIMENSIONS = {
    "dtype": NUMBERS + OTHERS,
    "array": ["np.ndarray", "jax.Array", "numpy scalar", "big-endian", "Fortran"],
    "shape": [[], [0], [1], [7], [3, 5], [2, 0, 3], [4, 3, 2, 5], [1] * 32],
    "tree": ["dict", "FrozenDict", "lists", "named tuple", "dataclass", "train state", "values", "nothing", "9 arrays",
             "1001 arrays"],
    "keys": ["w", "a.b", "a/b", "日本語", "", "0", "10", "a\\b", " ", "k" * 300],
    "chunks": ["whole", "64 bytes", "1 element"],
}
PARTS = {"whole": 1 << 30, "64 bytes": 64, "1 element": 1}
Pair = collections.namedtuple("Pair", ["first", "second"])


@flax.struct.dataclass
class Record:
    weight: object
    inner: object
    note: str = flax.struct.field(pytree_node=False, default="static")


def possible(case):
    array, dtype = case["array"], case["dtype"]
    if array == "numpy scalar" and case["shape"]:
        return False
    if array == "big-endian" and (np.dtype(dtype).itemsize == 1 or dtype == "bfloat16"):
        return False
    if array == "jax.Array" and (dtype in OTHERS[3:]):
        return False
    # An array of many chunks is large.
    return case["tree"] != "1001 arrays" or case["chunks"] == "whole" and math.prod(case["shape"]) < 10


def hides(case):
    return case["dtype"] in OTHERS or case["tree"] == "nothing"


def make(case, seed=0):
    shape, dtype = case["shape"], np.dtype(case["dtype"])
    random = np.random.default_rng(seed)
    count = math.prod(shape)
    if case["dtype"] in OTHERS:
        array = np.ones(shape, dtype)
    else:
        bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
        array = (bits & 1 if case["dtype"] == "bool" else bits).view(dtype).reshape(shape)
    match case["array"]:
        case "jax.Array":
            return jnp.asarray(array)
        case "numpy scalar":
            return array[()]
        case "big-endian":
            return array.astype(array.dtype.newbyteorder(">"))
        case "Fortran":
            return np.asfortranarray(array)
    return array


def tree_of(case):
    key = case["keys"]
    match case["tree"]:
        case "dict":
            return {key: make(case), "inner": {key: make(case, 1), "deep": {"b": make(case, 2)}}}
        case "FrozenDict":
            return FrozenDict({"params": {key: make(case)}})
        case "lists":
            return {key: [make(case), (make(case, 1), [])], "many": [make(case, i) for i in range(11)]}
        case "named tuple":
            return {key: Pair(make(case), Pair(1, make(case, 1)))}
        case "dataclass":
            return Record(make(case), {key: make(case, 1)})
        case "train state":
            state = TrainState.create(apply_fn=None, params={"layer": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}},
                                      tx=optax.adam(1e-3))
            return {"state": state, key: make(case)}
        case "values":
            return {"int": 7, "negative": -2**63, "large": 2**64 - 1, "float": 0.1, "nan": math.nan, "infinity": -math.inf,
                    "on": True, "text": "Ä\n\"", "empty": "", "bytes": b"\x00\xff", key: {"zero": -0.0, "w": make(case)}}
        case "nothing":
            return {key: {}, "other": {"inner": {}}}
    return {f"{key}{i}": make(case, i) for i in range(int(case["tree"].split()[0]))}


def joined(prefix, key):
    escaped = key.replace("\\", "\\\\").replace(".", "\\.") or "\\e"  # docs/formats/flat.md
    return escaped if prefix is None else f"{prefix}.{escaped}"


def leaves(tree, prefix=None):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, joined(prefix, key))
        else:
            yield joined(prefix, key), value


def plain(value):
    """A value as `inspect --json` prints it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$f64": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    return value


def write(case, path):
    path = path.with_suffix(".msgpack")
    flax.serialization.MAX_CHUNK_SIZE = PARTS[case["chunks"]]
    path.write_bytes(flax.serialization.to_bytes(tree_of(case)))
    tensors, values, unread = {}, {}, set()
    try:
        tree = flax.serialization.msgpack_restore(path.read_bytes())
    except TypeError as error:  # a dtype whose name NumPy does not know
        assert case["dtype"] in OTHERS, error
        tree = None
    if tree is None or case["dtype"] in OTHERS:
        tree = flax.serialization.to_state_dict(tree_of(case))
    for name, value in leaves(tree):
        if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
            if value is not None:
                values[name] = plain(value)
        elif value.dtype.name in comparison.NAMES:
            tensors[name] = np.asarray(value)
        else:
            unread.add(name)
    return path, comparison.Expected(tensors, tuple(unread), values=values)


def read(path):
    tree = flax.serialization.msgpack_restore(Path(path).read_bytes())
    return {name: np.asarray(value) for name, value in leaves(tree) if isinstance(value, (np.ndarray, np.generic))}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
