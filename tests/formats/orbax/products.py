"""Products of Orbax's checkpoints, by Orbax."""

import dataclasses
import json
import math
import os
import sys
import typing
from pathlib import Path

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
import flax.serialization  # noqa: E402
import flax.struct  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "products"))
import comparison  # noqa: E402

jax.config.update("jax_enable_x64", True)
PACKAGES = ["orbax-checkpoint", "jax", "flax", "optax", "tensorstore", "ml_dtypes", "numpy"]
PAGES = ["formats/orbax"]
COMPARED = ["metadata", "values"]
FILES = 14  # of about 20 files each
DIMENSIONS = {
    "leaf": ["jax.Array", "np.ndarray", "jax.Array on 4 devices"],
    "dtype": ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
              "bfloat16", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
              "int4", "int2"],
    "shape": [[], [1], [7], [4, 6], [8, 3, 5], [20, 24], [1] * 8],
    "elements": ["zeros", "random bits"],
    "tree": ["containers", "objects", "keys", "scalars", "empty nodes", "one leaf", "9 leaves"],
    "place": ["item", "step", "manager", "manager with a prefix", "two items", "item and JSON"],
    "OCDBT": [True, False],
    "zarr": [2, 3],
    "chunk bytes": [None, 64],
    "metrics": ["none", "numbers", "NaN"],
    "chunks": ["all", "one removed"],
}
KEYS = ["a.b", "a/b", "日本語", "x y", "0", "a\\b", "k" * 100]


class Pair(typing.NamedTuple):
    first: object
    second: object


@flax.struct.dataclass
class Record:
    weight: object
    inner: object
    note: str = flax.struct.field(pytree_node=False, default="static")


def possible(case):
    if case["tree"] == "keys" and not case["OCDBT"]:
        return False  # Orbax does not find such a key's file again
    sharded = case["leaf"] == "jax.Array on 4 devices"
    if sharded and not any(n % 4 == 0 and n for n in case["shape"]):
        return False
    if case["metrics"] != "none" and not case["place"].startswith("manager"):
        return False
    if case["chunks"] == "one removed" and case["OCDBT"]:
        return False  # a database has no files of chunks
    return True


def hides(case):
    return case["chunks"] == "one removed"


def leaf(case, seed):
    dtype, shape = np.dtype(case["dtype"]), case["shape"]
    random = np.random.default_rng(seed)
    count = math.prod(shape)
    if case["elements"] == "zeros":
        array = np.zeros(shape, dtype)
    elif case["dtype"] in ("int4", "int2"):
        low = -8 if case["dtype"] == "int4" else -2
        array = random.integers(low, -low, shape).astype(np.int8).astype(dtype)
    else:
        bits = random.integers(0, 256, count * dtype.itemsize, np.uint8)
        array = (bits & 1 if dtype == bool else bits).view(dtype).reshape(shape)
    if case["leaf"] == "np.ndarray":
        return array
    if case["leaf"] == "jax.Array":
        return jnp.asarray(array)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    axis = next(i for i, n in enumerate(shape) if n % 4 == 0 and n)
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*[None] * axis, "x")))


def tree_of(case):
    def one(seed=0):
        return leaf(case, seed)
    match case["tree"]:
        case "containers":
            return {"list": [one(), one(1)], "tuple": (one(2), [one(3)]), "dict": {"deep": {"w": one(4)}},
                    "pair": Pair(one(5), Pair(1, 2)), "many": list(range(11))}
        case "objects":
            params = {"dense": {"kernel": jnp.ones((3, 2)), "bias": one()}}
            state = TrainState.create(apply_fn=None, params=params, tx=optax.chain(optax.clip(1.0), optax.identity()))
            return {"state": state.replace(step=jnp.asarray(3)), "record": Record(one(), {"b": one(1)})}
        case "keys":
            return {key: {key: one(i)} for i, key in enumerate(KEYS)}
        case "scalars":
            return {"w": one(), "int": 2**60, "negative": -1, "float": 0.1, "nan": math.nan, "infinity": -math.inf, "on": True,
                    "off": False, "text": "Ä\n\"", "no text": "", "np": np.float32(1.5), "np int": np.int16(3)}
        case "empty nodes":
            return {"w": one(), "none": None, "dict": {}, "list": [], "tuple": (), "inner": {"dict": {"none": None}},
                    "named": optax.EmptyState()}
        case "one leaf":
            return {"w": one()}
    return {f"p{i}": one(i) for i in range(9)}


def names_of(tree):
    found = {}
    for keys, value in jax.tree_util.tree_flatten_with_path(tree)[0]:
        parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", None)))) for k in keys]
        found[".".join(p.replace("\\", "\\\\").replace(".", "\\.") for p in parts)] = value
    return found


def handler(case):
    return ocp.PyTreeCheckpointHandler(use_ocdbt=case["OCDBT"], use_zarr3=case["zarr"] == 3)


def save(case, path, tree):
    arguments = None
    if case["chunk bytes"]:
        arguments = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=case["chunk bytes"]), tree)
    tree_args = ocp.args.PyTreeSave(tree, save_args=arguments)
    place = case["place"]
    if place == "item":
        ocp.Checkpointer(handler(case)).save(path, args=tree_args)
        return {"": path}
    if place.startswith("manager"):
        metrics = {"none": None, "numbers": {"loss": 0.25, "steps": 7}, "NaN": {"loss": math.nan, "best": math.inf}}
        metrics = metrics[case["metrics"]]
        prefix = "step" if "prefix" in place else None
        # Without a function of the best step, Orbax drops the metrics.
        best = None if metrics is None else lambda found: found.get("steps", 1)
        options = ocp.CheckpointManagerOptions(step_prefix=prefix, step_format_fixed_length=4 if prefix else None, best_fn=best)
        with ocp.CheckpointManager(path, options=options, item_handlers=handler(case)) as manager:
            manager.save(2, args=ocp.args.PyTreeSave({"old": np.zeros(1)}), metrics=metrics)
            manager.save(10, args=tree_args, metrics=metrics)
            manager.wait_until_finished()
        return {"": path / ("step_0010" if prefix else "10") / "default"}
    items = {"step": ["state"], "two items": ["params", "other"], "item and JSON": ["state"]}[place]
    handlers = {name: handler(case) for name in items} | ({"notes": ocp.JsonCheckpointHandler()} if "JSON" in place else {})
    composite = {name: tree_args for name in items}
    if "JSON" in place:
        composite["notes"] = ocp.args.JsonSave({"run": "Ä", "loss": 0.5})
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler(**handlers)) as checkpointer:
        checkpointer.save(path, args=ocp.args.Composite(**composite))
    return {("" if len(items) == 1 else name + "."): path / name for name in items}


def plain(value):
    """A value as `inspect --json` prints it."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$f64": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def text_of(path):
    """A document as stele's metadata have it."""
    document = {key: plain(value) for key, value in json.loads(path.read_text()).items()}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def write(case, path):
    tree = tree_of(case)
    items = save(case, path, tree)
    tensors, values, metadata = {}, {}, {}
    if case["metrics"] != "none":
        metadata["metrics"] = text_of(next(path.glob("*10/metrics/metrics")))
    if "JSON" in case["place"]:
        metadata["notes"] = text_of(path / "notes" / "metadata")
    for prefix, item in items.items():
        if case["chunks"] == "one removed":
            v2 = [f for f in item.rglob("*") if f.name[0].isdigit() and (f.parent / ".zarray").exists()]
            max(v2 or [f for f in item.rglob("*") if f.is_file() and "c" in f.relative_to(item).parts]).unlink()
            try:
                ocp.Checkpointer(handler(case)).restore(item)
            except Exception:  # noqa: BLE001: Orbax adds its own around TensorStore's
                continue
            raise AssertionError("Orbax restores a checkpoint that lacks a chunk")
        restored = ocp.Checkpointer(handler(case)).restore(item)
        for name, value in names_of(restored).items():
            if isinstance(value, (jax.Array, np.ndarray)):
                array = np.asarray(value)
                tensors[prefix + name] = array.astype(np.int8) if array.dtype.name in ("int4", "int2") else array
            else:
                values[prefix + name] = plain(value)
    if case["chunks"] == "one removed":
        return path, comparison.Expected(refused="an element cannot be read")
    return path, comparison.Expected(tensors, metadata=metadata, values=values, lossy=bool(metadata))


def target(path):
    return path.parent / "back" / (path.name + ".msgpack")


def read(path):
    """Flax reads what stele converts."""
    found = names_of(flax.serialization.msgpack_restore(Path(path).read_bytes()))
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
