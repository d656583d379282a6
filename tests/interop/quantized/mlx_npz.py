"""Writes tests/core/data/quantized/mlx_npz: what mlx.core.savez stores of quantized weights, for every number of bits
and group size (mlx 0.32.4 of PyPI). Prints the lines of expected.txt: each name, its shape and the hash of its numbers.

    mlx_npz.py FOLDER
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np


def hash_of(numbers):
    """FNV-1a over the bytes of f32, as composites_test.cpp."""
    value = 0xCBF29CE484222325
    for byte in (numbers + np.float32(0)).astype("<f4").tobytes():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    weight = mx.array(np.random.RandomState(7).randn(2, 256).astype(np.float32))
    arrays, settings = {}, {"group_size": 64, "bits": 4}
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            name = f"b{bits}g{group}"
            codes, scales, biases = mx.quantize(weight, group_size=group, bits=bits)
            arrays |= {f"{name}.weight": codes, f"{name}.scales": scales, f"{name}.biases": biases}
            settings[name] = {"group_size": group, "bits": bits}
            numbers = np.array(mx.dequantize(codes, scales, biases, group_size=group, bits=bits))
            print(f"{name}.weight 2x256 {hash_of(numbers)}")
    mx.savez(str(folder / "weights.npz"), **arrays)
    (folder / "config.json").write_text(json.dumps({"quantization": settings}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
