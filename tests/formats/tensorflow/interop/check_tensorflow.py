#!/usr/bin/env python3
"""Compare random checkpoints of TensorFlow with what stele reads, byte by byte: make interop-tensorflow.

    check_tensorflow.py BUILD [ROUNDS]    BUILD: a build folder with tests/interop_tensorflow
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import ml_dtypes
import numpy as np
import tensorflow as tf

NUMBERS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16",
           "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool",
           "complex64": "c64", "complex128": "c128", "float8_e5m2": "f8_e5m2", "float8_e4m3fn": "f8_e4m3fn"}


def text(data):
    return "x" + data.hex()


def shape_text(shape):
    return "[" + "".join(f"{n}," for n in shape) + "]"


def random_shape(rng, least=0):
    return [rng.randrange(least, 9) for _ in range(rng.randrange(least, 5))]


def random_array(rng, dtype, shape):
    dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    count = int(np.prod(shape, dtype=np.int64))
    data = rng.randbytes(count * dtype.itemsize)
    return np.frombuffer(bytes(b & 1 for b in data) if dtype == np.bool_ else data, dtype).reshape(shape)


def cut(rng, start, length, times):
    axis = rng.randrange(len(start))
    if times == 0 or length[axis] < 2:
        return [(start, length)]
    first = rng.randrange(1, length[axis])
    left = length[:axis] + [first] + length[axis + 1:]
    right_start = start[:axis] + [start[axis] + first] + start[axis + 1:]
    right = length[:axis] + [length[axis] - first] + length[axis + 1:]
    return cut(rng, start, left, times - 1) + cut(rng, right_start, right, times - 1)


def write(rng, folder):
    """Write a checkpoint of one to three shards; return the lines that stele should print."""
    lines, shards = {}, []
    for shard in range(rng.randrange(1, 4)):
        names, slices, tensors = [], [], []
        for i in range(rng.choice([1, 3, 30])):
            name = "".join(rng.choices("ab/.:é\xff_", k=rng.randrange(1, 12))) + f"{shard}_{i}"
            key = text(name.encode())
            kind = rng.randrange(6)
            if kind == 0:
                strings = np.array([rng.randbytes(rng.choice([0, 1, 5, 300])) for _ in range(rng.randrange(4))], object)
                tensors.append(tf.constant(strings, tf.string))
                lines[key] = " ".join([key, "string"] + [text(s) for s in strings])
            else:
                dtype = rng.choice(list(NUMBERS))
                array = random_array(rng, dtype, random_shape(rng, 1 if kind == 1 else 0))
                lines[key] = f"{key} {NUMBERS[dtype]} {shape_text(array.shape)} {text(array.tobytes())}"
                if kind == 1:
                    for start, length in cut(rng, [0] * array.ndim, list(array.shape), rng.randrange(4)):
                        part = array[tuple(slice(s, s + n) for s, n in zip(start, length))]
                        axes = ["-" if n == whole and rng.random() < 0.5 else f"{s},{n}"
                                for s, n, whole in zip(start, length, array.shape)]
                        names.append(name)
                        slices.append(" ".join(map(str, array.shape)) + " " + ":".join(axes))
                        tensors.append(tf.constant(part))
                    continue
                tensors.append(tf.constant(array))
            names.append(name)
            slices.append("")
        shards.append(str(folder / f"part{shard}"))
        tf.raw_ops.SaveV2(prefix=shards[-1], tensor_names=names, shape_and_slices=slices, tensors=tensors)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=shards, destination_prefix=str(folder / "all"))
    return lines


def main():
    build = pathlib.Path(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    tensors = 0
    for seed in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            lines = write(random.Random(seed), folder)
            found = subprocess.run([build / "tests/interop_tensorflow", folder / "all"], check=True, capture_output=True)
            printed = found.stdout.decode().splitlines()
            if sorted(printed) != sorted(lines.values()):
                sys.exit(f"seed {seed}: stele read other tensors:\n" +
                         "\n".join(sorted(set(printed) ^ set(lines.values()))[:6]))
            tensors += len(lines)
    print(f"tensorflow {tf.__version__}: ok, {rounds} checkpoints with {tensors} tensors")


if __name__ == "__main__":
    main()
