#!/usr/bin/env python3
"""Sharded safetensors files, exchanged with Python.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/safetensors/interop/shards.py write FOLDER          a set as huggingface_hub splits it
    python3 tests/formats/safetensors/interop/shards.py check FOLDER TENSORS  read such a set that another writer made

The tensors of a set are: name i has shape [i, 3], f32, and element k of it is i + k / 4 (TENSORS of them, i from 1 on).
"""

import json
import pathlib
import sys

import numpy as np
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import safe_open
from safetensors.numpy import save_file

COUNT = 9
INDEX = "model.safetensors.index.json"


def tensor(i):
    return (i + np.arange(3 * i, dtype="<f4") / 4).reshape(i, 3).astype("<f4")


def write(folder):
    state = {f"layers.{i}.weight": tensor(i) for i in range(1, COUNT + 1)}
    split = split_state_dict_into_shards_factory(
        state,
        get_storage_size=lambda t: t.nbytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=200,
    )
    folder.mkdir(parents=True, exist_ok=True)
    for file, names in split.filename_to_tensors.items():
        save_file({name: state[name] for name in names}, folder / file, metadata={"format": "pt"})
    # As huggingface_hub.save_torch_state_dict writes it.
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def check(folder, count):
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    weight_map = index["weight_map"]
    seen = {}
    for file in sorted(set(weight_map.values())):
        with safe_open(folder / file, framework="np") as shard:
            assert shard.metadata()["format"] == "pt", file
            for name in shard.keys():
                assert weight_map[name] == file, name
                assert name not in seen, name
                seen[name] = shard.get_tensor(name)
    assert seen.keys() == weight_map.keys()
    assert {f"layers.{i}.weight" for i in range(1, count + 1)} == seen.keys(), sorted(seen)
    for i in range(1, count + 1):
        found = seen[f"layers.{i}.weight"]
        assert found.dtype == np.float32 and np.array_equal(found, tensor(i)), i
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in seen.values())
    assert index["metadata"]["note"] == "café", index["metadata"]
    on_disk = {p.name for p in folder.iterdir()} - {INDEX}
    assert on_disk == set(weight_map.values()), on_disk
    print(f"{folder.name}: {len(seen)} tensors in {len(on_disk)} files, as expected")


if sys.argv[1] == "write":
    write(pathlib.Path(sys.argv[2]))
else:
    check(pathlib.Path(sys.argv[2]), int(sys.argv[3]))
