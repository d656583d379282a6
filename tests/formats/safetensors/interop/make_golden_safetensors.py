#!/usr/bin/env python3
"""Write the golden files of tests/formats/safetensors/data with the real library.

    pip install -r tests/interop/requirements.txt
    python3 tests/formats/safetensors/interop/make_golden_safetensors.py [FOLDER]

The values follow one rule, so that a test can compute them again. Element k
of a tensor, counted in C order, is

    BOOL                      k % 2
    U8 U16 U32 U64            k % 7
    I8 I16 I32 I64            (k % 7) - 2
    F16 BF16 F32 F64          (k % 7) - 2
    C64                       (k % 7) - 2, imaginary part 0
    F8_* F4                   byte k of the stored data is k % 256

README.md beside the files says which tensors each of them has.
"""

import pathlib
import sys

import numpy as np
import safetensors
from safetensors import TensorSpec, serialize

SIGNED = {
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "float16": np.float16, "float32": np.float32, "float64": np.float64,
    "complex64": np.complex64,
}
UNSIGNED = {"uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64}
# dtypes that NumPy lacks and whose bytes are counted up instead
RAW = ("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz",
       "float8_e5m2fnuz", "float4_e2m1fn_x2")


def values(dtype, count):
    """The stored elements of a tensor, as an array of exactly its bytes."""
    k = np.arange(count)
    if dtype in RAW:
        return (k % 256).astype(np.uint8)
    if dtype == "bool":
        return k % 2 == 1
    if dtype in UNSIGNED:
        data = (k % 7).astype(UNSIGNED[dtype])
    elif dtype == "bfloat16":  # the upper half of an F32; all values are exact
        data = (((k % 7) - 2).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        data = ((k % 7) - 2).astype(SIGNED[dtype])
    return data.astype(data.dtype.newbyteorder("<"))


def build(tensors, metadata=None):
    """tensors: name -> (dtype, shape). For float4_e2m1fn_x2 the shape counts
    bytes; the library doubles its last number in the header."""
    alive = {name: values(dtype, int(np.prod(shape, dtype=np.int64)))
             for name, (dtype, shape) in tensors.items()}
    specs = {name: TensorSpec(dtype=dtype, shape=list(shape),
                              data_ptr=alive[name].ctypes.data, data_len=alive[name].nbytes)
             for name, (dtype, shape) in tensors.items()}
    return bytes(serialize(specs, metadata))


# Insertion order is neither the order of names nor that of the file.
PLAIN = {
    "layer.weight": ("float32", (4, 3)),
    "mask": ("bool", (9,)),
    "half": ("float16", (2, 5)),
    "layer.bias": ("float32", (4,)),
    "bytes": ("uint8", (3, 5)),
    "index": ("int64", (8,)),
    "a.last.in.insertion": ("float32", (2, 2, 2)),
}

# Every dtype that the library can write from Python: F6_E2M3 and F6_E3M2 are
# in the format, but have no name there. The raw tensors have 272 bytes each,
# so that their bytes wrap around.
ALL_DTYPES = {
    "f4": ("float4_e2m1fn_x2", (16, 17)),
    "f8_e5m2": ("float8_e5m2", (16, 17)),
    "f8_e4m3": ("float8_e4m3fn", (16, 17)),
    "f8_e8m0": ("float8_e8m0fnu", (16, 17)),
    "f8_e4m3fnuz": ("float8_e4m3fnuz", (16, 17)),
    "f8_e5m2fnuz": ("float8_e5m2fnuz", (16, 17)),
    "bool": ("bool", (3, 5)),
    "u8": ("uint8", (3, 5)),
    "i8": ("int8", (3, 5)),
    "i16": ("int16", (3, 5)),
    "u16": ("uint16", (3, 5)),
    "f16": ("float16", (3, 5)),
    "bf16": ("bfloat16", (3, 5)),
    "i32": ("int32", (3, 5)),
    "u32": ("uint32", (3, 5)),
    "f32": ("float32", (3, 5)),
    "c64": ("complex64", (3, 5)),
    "f64": ("float64", (3, 5)),
    "i64": ("int64", (3, 5)),
    "u64": ("uint64", (3, 5)),
}

ZERO = {
    "scalar.u8": ("uint8", ()),
    "scalar.f32": ("float32", ()),
    "scalar.i64": ("int64", ()),
    "scalar.bool": ("bool", ()),
    "none.f32": ("float32", (0,)),
    "none.i64": ("int64", (0,)),
    "none.u8": ("uint8", (0,)),
    "none.f4": ("float4_e2m1fn_x2", (0,)),
    "hollow.f32": ("float32", (3, 0, 2)),
    "hollow.f16": ("float16", (3, 0, 2)),
    "hollow.bool": ("bool", (3, 0, 2)),
}

METADATA = {"weight": ("float32", (2, 3))}
NOTE = {"note": 'caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 said "yes" \\ no / end'}

# One dtype, so that the order of the file is the order of the names alone.
# U+FF5E comes before U+1F600 in UTF-8, and behind it in UTF-16.
UNICODE = {name: ("int16", (k + 1,)) for k, name in enumerate([
    "\U0001f600",
    "\uff5e",
    "\u65e5\u672c\u8a9e",
    "caf\u00e9",   # e with acute as one character
    "cafe\u0301",  # and as two: another name
    "with space",
    'quo"te',
    "back\\slash",
    "a.b",
    "a/b",
    "a",
    "Z",
    "",
])}

FILES = {
    "plain": build(PLAIN),
    "alldtypes": build(ALL_DTYPES),
    "zero": build(ZERO),
    "empty": build({}),
    "metadata": build(METADATA, NOTE),
    "unicode": build(UNICODE),
}


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = here.parent / "data"
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print(f"safetensors {safetensors.__version__}, numpy {np.__version__}")
    for name, data in FILES.items():
        (folder / f"{name}.safetensors").write_bytes(data)
        print(f"{name}.safetensors: {len(data)} bytes")


if __name__ == "__main__":
    main()
