"""Dtypes: names of the library, and those of NumPy, ml_dtypes and torch."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np

# Dtypes of NumPy itself, by the library's names.
NUMPY = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
_PLAIN = {name: np.dtype(other) for name, other in NUMPY.items()}
# nanobind makes arrays of long long, which is another type of NumPy than int64 if long has 64 bits.
LONG_LONG = {"q": np.dtype(np.int64), "Q": np.dtype(np.uint64)}
# Dtypes of ml_dtypes that are whole bytes.
ML_DTYPES = {
    "bf16": "bfloat16",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
}
# Dtypes that a file packs, two in a byte; ml_dtypes has a byte for each.
PACKED = {"i4": "int4", "u4": "uint4", "f4_e2m1": "float4_e2m1fn"}
# Dtypes that a file packs, four in three bytes.
PACKED_6 = {"f6_e2m3": "float6_e2m3fn", "f6_e3m2": "float6_e3m2fn"}
TORCH = {
    **{name: other for name, other in NUMPY.items() if name not in ("c64", "c128")},
    "c64": "complex64",
    "c128": "complex128",
    **ML_DTYPES,
}
_ML_NAMES = {**ML_DTYPES, **PACKED, **PACKED_6}
# The library's names by those of other programs.
NAMES = {other: name for table in (TORCH, PACKED, PACKED_6) for name, other in table.items()}


def is_torch(entry: Any) -> bool:
    """Returns True for a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(entry, getattr(torch, "Tensor", ()))


@functools.cache
def ml_dtype(name: str) -> np.dtype[Any] | None:
    """Returns a dtype of ml_dtypes, or None if the package is missing or too old for it."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    scalar = getattr(ml_dtypes, name, None)
    return None if scalar is None else np.dtype(scalar)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the dtype that view_as() gives arrays of a dtype of the library."""
    plain = _PLAIN.get(name)
    if plain is not None:
        return plain
    known = ml_dtype(_ML_NAMES[name]) if name in _ML_NAMES else None
    return known if known is not None else np.dtype([(name, "u2" if name == "bf16" else "u1")])


class Described:
    """The dtype and shape of a tensor that is a file's, or a device's.

    Attributes:
        dtype_name: the library's name of the dtype: ``"f32"``, ``"bf16"``, ``"i4"``, ``"q4_K"``, ...
        shape: the extents, outermost first.
        nbytes: the number of bytes.
    """

    __slots__ = ("dtype_name", "nbytes", "shape")

    def __init__(self, dtype_name: str, shape: tuple[int, ...], nbytes: int) -> None:
        self.dtype_name = dtype_name
        self.shape = shape
        self.nbytes = nbytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what ``numpy()`` returns: NumPy's, or that of ml_dtypes. A dtype that both lack, such as blocks
        (``q4_K``), and any of ml_dtypes without this package, is a structured dtype of raw bytes with one field, the
        ``dtype_name``."""
        return numpy_dtype(self.dtype_name)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def view_as(array: np.ndarray[Any, Any], dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Returns an array of the raw elements of a dtype as an array of that dtype.

    Without ml_dtypes, elements of dtypes that NumPy lacks stay raw, in a structured dtype with one field of the
    dtype's name. Blocks do, always.
    """
    if dtype in NUMPY:
        long = LONG_LONG.get(array.dtype.char)
        return array if long is None else array.view(long)
    known = numpy_dtype(dtype)
    if known.names is None and dtype in PACKED:
        return _unpack_4(array, shape).view(known)
    if known.names is None and dtype in PACKED_6:
        return _unpack_6(array, shape).view(known)
    return array.view(known)


def _unpack_4(packed: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Unpacks 4-bit elements, the lower half of a byte first, to a byte each."""
    out = np.empty(2 * packed.size, np.uint8)
    out[0::2] = packed & 15
    out[1::2] = packed >> 4
    return out[: math.prod(shape)].reshape(shape)


def _unpack_6(packed: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Unpacks 6-bit elements, the lowest bits of the bytes first, to a byte each."""
    bits = np.unpackbits(packed, bitorder="little")
    count = math.prod(shape)
    rows = bits[: 6 * count].reshape(count, 6)
    return np.packbits(rows, axis=1, bitorder="little").reshape(shape)


def pack_4(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Packs elements of a byte each into 4 bits, the lower half of a byte first."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & 15
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return flat[0::2] | (flat[1::2] << 4)


def pack_6(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Packs elements of a byte each into 6 bits, the lowest bits of the bytes first."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    bits = np.unpackbits(flat.reshape(-1, 1), axis=1, bitorder="little")[:, :6]
    return np.packbits(bits.reshape(-1), bitorder="little")
