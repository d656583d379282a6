"""NumPy arrays in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _dtypes
from .._save import _described
from . import TensorSpec, deserialize, safe_open, serialize, serialize_file
from ._arguments import items_of
from ._dtypes import CODES, unknown_dtype
from ._errors import error_of
from ._safe_open import load_bytes, load_path
from ._saving import bytes_of, write

__all__ = [
    "TensorSpec",
    "deserialize",
    "load",
    "load_file",
    "safe_open",
    "save",
    "save_file",
    "serialize",
    "serialize_file",
]

_TYPES = {code: np.dtype(_dtypes.NUMPY[name]).type for name, code in CODES.items() if name in _dtypes.NUMPY}


def _getdtype(dtype_str: str) -> type[Any]:
    return _TYPES[dtype_str]


def _rows(tensor_dict: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Returns rows for arrays in any memory order, with any strides, in either byte order."""
    rows = []
    for name, tensor in items_of(tensor_dict):
        if not hasattr(tensor, "dtype") or not hasattr(tensor, "__array__"):
            raise TypeError(f"{name}: an array of NumPy is expected, not {type(tensor).__name__}")
        array = np.asanyarray(tensor)
        try:
            row = _described(name, array)
        except TypeError as error:
            if np.ma.is_masked(array):
                raise error_of(str(error)) from None
            raise unknown_dtype(array.dtype.name, name) from None
        if row[1] not in CODES:
            raise unknown_dtype(array.dtype.name, name)
        rows.append(row)
    return rows


def save(tensor_dict: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these arrays.

    Arrays can have any memory order, strides and byte order. Dtypes of ml_dtypes are those of the format.

    Raises:
        SafetensorError: the format has no such dtype.
        TypeError: a value is not an array, a name or a string of the metadata not a str.
    """
    return bytes_of(_rows(tensor_dict), metadata)


def save_file(
    tensor_dict: Mapping[str, np.ndarray[Any, Any]],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file with these arrays, in one step; as :func:`save`."""
    write(_rows(tensor_dict), filename, metadata)


def load(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays in a file's bytes, copied. Errors: SafetensorError.

    Dtypes that NumPy lacks are those of ml_dtypes; without it, raw elements in a structured dtype.
    """
    return load_bytes(data, "numpy")


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays in a file, with memory of their own; as :func:`load`. Errors: also OSError."""
    return load_path(filename, "np", backend=backend)
