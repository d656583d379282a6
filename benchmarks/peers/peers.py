#!/usr/bin/env python3
"""Saves and loads models with a Python library, on commands from benchmarks/peers.py: peers.py LIBRARY SHAPES.

Each line of the input is `save PATH` or `load PATH`; each answer is `= MILLISECONDS`.
"""
import gc
import sys
import time

import numpy


def numpy_library(tensors):
    def load(path):
        with numpy.load(path) as file:
            return {name: file[name] for name in file.files}

    def save(path):
        with open(path, "wb") as file:
            numpy.savez(file, **tensors)

    return save, load


def h5py_library(tensors):
    import h5py

    def save(path):
        with h5py.File(path, "w") as file:
            for name, tensor in tensors.items():
                file.create_dataset(name, data=tensor)

    def load(path):
        with h5py.File(path, "r") as file:
            return {name: file[name][()] for name in file}

    return save, load


def safetensors_library(tensors):
    from safetensors.numpy import load_file, save_file
    return lambda path: save_file(tensors, path), load_file


def torch_library(tensors):
    import torch
    state = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    return lambda path: torch.save(state, path), torch.load


def gguf_library(tensors):
    import gguf

    def save(path):
        writer = gguf.GGUFWriter(path, "none")
        for name, tensor in tensors.items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def load(path):  # the reader maps the file; the other libraries return a copy
        return {tensor.name: numpy.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}

    return save, load


def main():
    library, shapes = sys.argv[1:]
    random = numpy.random.default_rng(1)
    tensors = {}
    with open(shapes, encoding="utf-8") as file:
        for line in file:
            name, *shape = line.split()
            tensors[name] = random.random([int(extent) for extent in shape], dtype=numpy.float32)
    save, load = globals()[f"{library}_library"](tensors)
    for line in sys.stdin:
        order, path = line.split(maxsplit=1)
        gc.collect()
        start = time.perf_counter()
        result = (save if order == "save" else load)(path.strip())
        print("=", (time.perf_counter() - start) * 1000, flush=True)
        del result


if __name__ == "__main__":
    main()
