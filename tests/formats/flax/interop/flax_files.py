"""Files of Flax, both ways.

    flax.py make FOLDER    writes the golden files of tests/formats/flax/data (flax 0.12.8)
    flax.py check STELE    what Flax writes and the command converts, Flax reads again, and the reverse
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import flax.linen as nn
import flax.serialization
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
from flax.training.train_state import TrainState


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(2, (3, 3))(x)).reshape((x.shape[0], -1))
        return nn.Dense(3)(nn.relu(nn.Dense(4)(x)))


def numbers(tree):
    """Return the tree with values that do not depend on a generator."""
    return jax.tree.map(lambda a: jnp.arange(a.size, dtype=a.dtype).reshape(a.shape) / 8, tree)


def files():
    """Return the content of each golden file, and the size of its parts."""
    net = Net()
    params = numbers(net.init(jax.random.key(0), jnp.ones((1, 4, 4, 1)))["params"])
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))
    rank0 = np.asarray(2.5, np.float16)
    values = {"step": 7, "negative": -300, "large": 1 << 63, "rate": 0.5, "name": "é", "flag": True, "none": None,
              "bytes": b"\x00\xff", "empty": {}, "tuple": (1, 2), "list": [{"w": np.ones((1, 2), np.int8)}] * 2,
              "keys": {"10": 1, "2": 2}, "a.b": {"c/d": np.zeros(1, np.uint8)}}
    arrays = {np.dtype(t).name: np.arange(3).astype(t) for t in
              ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16")}
    arrays |= {t: np.arange(3).astype(t) for t in
               ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")}
    arrays |= {"rank0": rank0, "scalar": np.float32(1.5), "none": np.zeros((0, 3), np.float32)}
    unknown = {"w": np.ones(2, np.float32), "i4": np.ones(3, ml_dtypes.int4), "complex": 1 + 2j}
    large = {"w": np.arange(40, dtype=np.float32).reshape(5, 8), "b": np.ones(4, np.float32)}
    whole = 1 << 30
    return {"net": (params, whole), "state": (state, whole), "values": (values, whole), "arrays": (arrays, whole),
            "unknown": (unknown, whole), "large": (large, 64)}


def to_bytes(content, part):
    flax.serialization.MAX_CHUNK_SIZE = part
    return flax.serialization.to_bytes(content)


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (content, part) in files().items():
        (folder / f"{name}.msgpack").write_bytes(to_bytes(content, part))


def same(a, b):
    """Compare two trees, with dtypes and types of values."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (np.ndarray, np.generic)):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


def check(stele):
    def convert(*arguments):
        subprocess.run([stele, "convert", *arguments, "--quiet"], check=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for name in ("net", "state", "values", "arrays", "large"):
            source, copy, other = folder / f"{name}.msgpack", folder / "copy.msgpack", folder / "other.stele"
            convert(source, copy)
            convert(source, other)
            convert(other, folder / "back.msgpack")
            expected = flax.serialization.msgpack_restore(source.read_bytes())
            for made in (copy, folder / "back.msgpack"):
                if not same(flax.serialization.msgpack_restore(made.read_bytes()), expected):
                    sys.exit(f"{name}: Flax reads another tree from {made.name}")
            print(f"{name}: Flax reads what stele wrote")
        # Into Flax's own objects.
        net = Net()
        variables = net.init(jax.random.key(1), jnp.ones((1, 4, 4, 1)))
        convert(folder / "net.msgpack", folder / "copy.msgpack")
        restored = flax.serialization.from_bytes(variables["params"], (folder / "copy.msgpack").read_bytes())
        jax.tree.map(np.testing.assert_array_equal, restored, numbers(variables["params"]))
        print("from_bytes: equal parameters")


if __name__ == "__main__":
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
