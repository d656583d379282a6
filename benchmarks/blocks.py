#!/usr/bin/env python3
"""Compares the codecs of blocks with those of gguf-py and ggml: GB/s of f32 on one core, measured in one run.

    blocks.py BENCH_BLOCKS    BENCH_BLOCKS is the program bench_blocks; runs in the Python of `make interop-gguf`

The functions of ggml are those in llama-cpp-python's library. gguf-py has no encoder for K types.
"""

import ctypes
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
from gguf import quants

COUNT = 1 << 24  # floats: 64 MiB
TYPES = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_K": gguf.GGMLQuantizationType.Q4_K}


class Traits(ctypes.Structure):  # the start of ggml_type_traits
    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_int64), ("interleaved", ctypes.c_int64),
                ("bytes", ctypes.c_size_t), ("quantized", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


def rate(call):
    """Returns the best of a few rounds, in GB/s."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 4 * COUNT / best / 1e9


def main():
    done = subprocess.run([sys.argv[1], "--benchmark_format=json"], capture_output=True, text=True, check=True)
    ours = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        name, size = row["name"].split("/")[:2]
        if int(size) == 4 * COUNT:
            ours[name] = row["bytes_per_second"] / 1e9, row["of_copy"]

    folder = Path(importlib.util.find_spec("llama_cpp").origin).parent / "lib"
    ggml = ctypes.CDLL(str(folder / "libggml-base.so"))
    ggml.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + 3 * [ctypes.c_int64] + [ctypes.c_void_p]
    floats = np.random.default_rng(1).normal(0, 0.02, COUNT).astype(np.float32)
    print(f"{'64 MiB of f32, GB/s':<20} {'stele':>8} {'of a copy':>10} {'ggml':>8} {'gguf-py':>8}")
    for name, kind in TYPES.items():
        traits = ggml.ggml_get_type_traits(kind.value).contents
        blocks = np.zeros(COUNT // traits.elements * traits.bytes, np.uint8)
        encode = lambda: ggml.ggml_quantize_chunk(kind.value, floats.ctypes.data, blocks.ctypes.data, 0, 1, COUNT, None)
        rows = blocks.reshape(-1, traits.bytes * (256 // traits.elements if traits.elements < 256 else 1))
        out = np.empty(COUNT, np.float32)
        encode()
        theirs = {"decode": rate(lambda: traits.to_float(blocks.ctypes.data, out.ctypes.data, COUNT)), "encode": rate(encode)}
        python = {"decode": rate(lambda: quants.dequantize(rows, kind))}
        if kind == gguf.GGMLQuantizationType.Q8_0:
            python["encode"] = rate(lambda: quants.quantize(floats.reshape(-1, 256), kind))
        for way in ("decode", "encode"):
            speed, of_copy = ours[f"{way} {name}"]
            peer = f"{python[way]:8.2f}" if way in python else f"{'-':>8}"
            print(f"{way + ' ' + name:<20} {speed:8.2f} {of_copy:9.2f}x {theirs[way]:8.2f} {peer}")


main()
