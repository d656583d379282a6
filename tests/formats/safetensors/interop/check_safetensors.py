#!/usr/bin/env python3
"""Check safetensors files of another writer against the real library.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/safetensors/interop/check_safetensors.py FILE...

A file passes when

  1. the library opens it and gives every tensor out,
  2. every tensor has the values of the rule in make_golden_safetensors.py
     (F6 tensors follow the rule of F8 and F4: byte k is k % 256),
  3. the library, given the same tensors and metadata, writes the same bytes.

Where the library cannot write a file in a repeatable way the third check is
left out, and the line says why. One line is printed for a file; the exit
status is 1 when a file fails, 2 when no file was named.
"""

import sys

import numpy as np
from safetensors import TensorSpec, deserialize, safe_open, serialize

# dtype in the file -> (name for the writer, NumPy dtype of the stored data)
DTYPES = {
    "BOOL": ("bool", "?"),
    "U8": ("uint8", "u1"), "U16": ("uint16", "<u2"),
    "U32": ("uint32", "<u4"), "U64": ("uint64", "<u8"),
    "I8": ("int8", "i1"), "I16": ("int16", "<i2"),
    "I32": ("int32", "<i4"), "I64": ("int64", "<i8"),
    "F16": ("float16", "<f2"), "F32": ("float32", "<f4"), "F64": ("float64", "<f8"),
    "C64": ("complex64", "<c8"),
    "BF16": ("bfloat16", None),
    "F8_E5M2": ("float8_e5m2", None), "F8_E4M3": ("float8_e4m3fn", None),
    "F8_E8M0": ("float8_e8m0fnu", None),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", None), "F8_E5M2FNUZ": ("float8_e5m2fnuz", None),
    "F4": ("float4_e2m1fn_x2", None),
    "F6_E2M3": (None, None), "F6_E3M2": (None, None),
}


class Failure(Exception):
    pass


def expected(dtype, stored):
    """The data of a tensor of that many bytes, by the rule."""
    numpy = DTYPES[dtype][1]
    if dtype == "BF16":
        k = np.arange(stored // 2)
        upper = ((k % 7) - 2).astype("<f4").view("<u4") >> 16
        return upper.astype("<u2").tobytes()
    if numpy is None:
        return (np.arange(stored) % 256).astype("u1").tobytes()
    k = np.arange(stored // np.dtype(numpy).itemsize)
    if dtype == "BOOL":
        return (k % 2).astype("?").tobytes()
    if dtype[0] == "U":
        return (k % 7).astype(numpy).tobytes()
    return ((k % 7) - 2).astype(numpy).tobytes()


def first_difference(one, other):
    for k, (a, b) in enumerate(zip(one, other)):
        if a != b:
            return k
    return min(len(one), len(other))


def read(path, content):
    """name -> (dtype, shape, data), and the metadata; both public readers of
    the library must agree."""
    tensors = {name: (t["dtype"], t["shape"], bytes(t["data"]))
               for name, t in deserialize(content)}
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        if set(file.keys()) != set(tensors):
            raise Failure("safe_open and deserialize name different tensors")
        for name, (dtype, shape, data) in tensors.items():
            if dtype not in DTYPES:
                raise Failure(f"tensor {name!r} has the unknown dtype {dtype}")
            view = file.get_slice(name)
            if (view.get_dtype(), view.get_shape()) != (dtype, shape):
                raise Failure(f"tensor {name!r} has two dtypes or shapes")
            if DTYPES[dtype][1] is None:
                continue  # NumPy has no such dtype: the raw bytes must do
            array = file.get_tensor(name)
            if array.dtype != np.dtype(DTYPES[dtype][1]) or list(array.shape) != shape:
                raise Failure(f"tensor {name!r} became {array.dtype}{list(array.shape)}")
            if array.tobytes() != data:
                raise Failure(f"tensor {name!r} has two contents")
    return tensors, metadata


def check_values(tensors):
    for name, (dtype, shape, data) in tensors.items():
        want = expected(dtype, len(data))
        if data != want:
            at = first_difference(data, want)
            raise Failure(f"tensor {name!r} {dtype}{shape} breaks the value rule at byte {at}: "
                          f"has {data[at:at + 8].hex()}, wants {want[at:at + 8].hex()}")


def why_not_written(tensors, metadata):
    """Why the library cannot be asked for the same file; None when it can."""
    if metadata is not None and len(metadata) > 1:
        return f"{len(metadata)} metadata keys, whose order the library does not fix"
    if metadata is not None and not metadata and not tensors:
        return "the library writes broken JSON for an empty __metadata__ and no tensor"
    for name, (dtype, shape, _) in tensors.items():
        if DTYPES[dtype][0] is None:
            return f"tensor {name!r} is {dtype}, which the library only reads"
        if dtype == "F4" and (not shape or shape[-1] % 2):
            return f"tensor {name!r} is F4{shape}; the library writes an even last dimension only"
    return None


def rewrite(tensors, metadata):
    alive, specs = [], {}
    for name, (dtype, shape, data) in tensors.items():
        buffer = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)
        alive.append(buffer)
        shape = list(shape)
        if dtype == "F4":  # the library takes the shape in bytes and doubles it
            shape[-1] //= 2
        specs[name] = TensorSpec(dtype=DTYPES[dtype][0], shape=shape,
                                 data_ptr=buffer.ctypes.data, data_len=len(data))
    return bytes(serialize(specs, metadata))


def check(path):
    with open(path, "rb") as file:
        content = file.read()
    tensors, metadata = read(path, content)
    check_values(tensors)
    summary = f"{len(content)} bytes, tensors: {len(tensors)}, metadata keys: {len(metadata or {})}"
    reason = why_not_written(tensors, metadata)
    if reason:
        return f"{summary}; bytes not compared: {reason}"
    again = rewrite(tensors, metadata)
    if content != again:
        at = first_difference(content, again)
        raise Failure(f"the library writes other bytes from offset {at} ({len(again)} bytes in all): "
                      f"file {content[at:at + 40]!r}, library {again[at:at + 40]!r}")
    return f"{summary}; same bytes"


def main(paths):
    if not paths:
        print(f"usage: {sys.argv[0]} FILE...", file=sys.stderr)
        return 2
    failed = False
    for path in paths:
        try:
            print(f"ok    {path}: {check(path)}")
        except Exception as problem:  # whatever the library objects to is the finding
            failed = True
            text = " ".join(str(problem).split())
            print(f"FAIL  {path}: {type(problem).__name__}: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
