#!/usr/bin/env python3
"""Checkpoints of Orbax, and stele's copies of them.

  orbax_files.py make FOLDER    writes the golden folders
  orbax_files.py check STELE    converts checkpoints with stele, and compares them with Orbax
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tensorstore as ts
from flax.training.train_state import TrainState


def numbers(a):
    """Element i is i % 8."""
    return (jnp.arange(a.size) % 8).astype(a.dtype).reshape(a.shape)


def params(layers=2):
    shape = {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3, jnp.bfloat16)}
    return {"layers": jax.tree.map(numbers, [shape] * layers)}


def state():
    """A train state of Adam, and everything else that a tree may contain."""
    optimizer = optax.adam(1e-3)
    slots = jax.tree.map(lambda a: numbers(a) if a.ndim else a, optimizer.init(params()))
    extra = {"none": None, "dict": {}, "list": [], "name": "a name", "int": 5, "float": 2.5, "flag": True,
             "array": np.arange(3, dtype=np.int8), "scalar": np.float32(1.5), "a.b": np.ones(2), "tuple": (1, np.ones(1))}
    return {"params": params(), "opt_state": slots, "step": jnp.asarray(7), "extra": extra}


def save(path, tree, **settings):
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**settings)).save(path, args=ocp.args.PyTreeSave(tree))


def make(folder):
    folder = os.path.abspath(folder)
    for name in ("ocdbt", "plain", "zarr3", "steps", "unfinished", "many", "tensorstore"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    save(f"{folder}/ocdbt", state())
    save(f"{folder}/plain", params(1), use_ocdbt=False)
    save(f"{folder}/zarr3", {"w": numbers(jnp.zeros((8, 6))), "step": 7}, use_zarr3=True)
    with ocp.CheckpointManager(f"{folder}/steps") as manager:
        for step in (2, 10):
            tree = {"w": jnp.full(2, step, jnp.float32)}
            manager.save(step, args=ocp.args.Composite(
                state=ocp.args.StandardSave(tree), notes=ocp.args.JsonSave({"run": "a"})))
    # A database with several levels.
    kvstore = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/many/"},
               "config": {"max_decoded_node_bytes": 600, "max_inline_value_bytes": 16, "compression": {"id": "zstd"}}}
    for i in range(12):
        spec = {"driver": "zarr", "kvstore": kvstore, "path": f"group/array_{i}", "metadata": {"compressor": None}}
        array = ts.open(spec, create=True, dtype=ts.int16, shape=[6, 4], chunk_layout=ts.ChunkLayout(read_chunk_shape=[2, 4]))
        array.result()[...] = np.arange(24, dtype=np.int16).reshape(6, 4) + i
    # The processes' databases are merged already, and older versions are not read.
    for path, folders, _ in os.walk(folder):
        for name in folders:
            if name.startswith("ocdbt.process_"):
                shutil.rmtree(os.path.join(path, name))
    shutil.copytree(f"{folder}/steps/2", f"{folder}/steps/30.orbax-checkpoint-tmp")
    for name in ("ocdbt", "plain", "zarr3", "steps"):
        item = f"{folder}/{name}"
        handler = ocp.PyTreeCheckpointHandler(use_zarr3=name == "zarr3")
        if name != "steps":
            ocp.Checkpointer(handler).restore(item)


def leaves_of(tree):
    """The tree's numbers by stele's path, as Orbax restores them."""
    found = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", None)))) for k in keys]
        found[".".join(p.replace("\\", "\\\\").replace(".", "\\.") for p in parts)] = leaf
    return found


def check(stele):
    from safetensors.flax import load_file

    cases = {"ocdbt": state(), "plain": params(3), "zarr3": state()}
    optimizer = optax.adamw(1e-3)
    cases["train_state"] = TrainState.create(apply_fn=None, params=params(11), tx=optimizer)
    cases["large"] = {"w": jax.random.normal(jax.random.key(0), (2000, 700)), "ids": jnp.arange(100_000)}
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, tree in cases.items():
            path = os.path.join(folder, name)
            settings = {"plain": {"use_ocdbt": False}, "zarr3": {"use_zarr3": True}}.get(name, {})
            save(path, tree, **settings)
            copy = os.path.join(folder, name + ".safetensors")
            subprocess.run([stele, "convert", path, copy, "--allow-loss", "--quiet"], check=True)
            arrays = load_file(copy)
            expected = leaves_of(ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(path))
            for path, leaf in expected.items():
                if isinstance(leaf, (jax.Array, np.ndarray)):
                    found = arrays.pop(path)
                    assert found.shape == leaf.shape, path
                    assert str(found.dtype) == str(leaf.dtype) or leaf.dtype.itemsize == 8, path
                    assert np.array_equal(np.asarray(found), np.asarray(leaf)), path
                    count += 1
            assert not arrays, arrays.keys()
    print(f"{count} arrays compared with orbax-checkpoint {ocp.__version__}, jax {jax.__version__}")


def check_absent(stele):
    """Remove chunks: Orbax restores no such checkpoint, and stele names the chunk."""
    for zarr3, chunks in ((False, ("w/0.0", "zeros/0")), (True, ("w/c/0/0", "zeros/c/0"))):
        for chunk in chunks:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "step")
                save(path, {"w": numbers(jnp.zeros((8, 6))), "zeros": jnp.zeros(4)}, use_ocdbt=False, use_zarr3=zarr3)
                assert subprocess.run([stele, "verify", path], stdout=subprocess.DEVNULL).returncode == 0
                os.remove(os.path.join(path, chunk))
                error = None
                try:
                    ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(path)
                except Exception as raised:  # noqa: BLE001: Orbax adds its own around TensorStore's
                    error = raised
                assert error is not None and "NOT_FOUND" in f"{error} {error.__cause__}", (chunk, error)
                verdict = subprocess.run([stele, "verify", path], capture_output=True, text=True)
                assert verdict.returncode == 1 and chunk in verdict.stdout, verdict
    print("absent chunks are lost for Orbax and for stele")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        check(sys.argv[2])
        check_absent(sys.argv[2])
