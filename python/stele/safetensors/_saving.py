"""Tensors in memory -> a file in the format."""

from __future__ import annotations

import contextlib
import math
import operator
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _stele
from .._file import File
from .._save import save as save_any
from ._arguments import items_of, path_of, strings_of
from ._dtypes import BITS, CODES, SPEC_DTYPES, unknown_dtype
from ._errors import _SavingError, error_of, translated

_WRITING = "Error while serializing"


class TensorSpec:
    """Describes a tensor in memory for :func:`serialize`: elements in row-major order, without gaps.

    The caller keeps the memory alive.

    Args:
        dtype: a name of NumPy or torch: ``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``, ``"float4_e2m1fn_x2"``, ...
        shape: the extents. For ``float4_e2m1fn_x2`` torch's, with two elements counted as one in the last axis.
        data_ptr: the address.
        data_len: the number of bytes.

    Raises:
        SafetensorError: the dtype is unknown.
    """

    __slots__ = ("_data_len", "_data_ptr", "_name", "_shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        if not isinstance(dtype, str):
            raise TypeError(f"TensorSpec: the dtype must be str, not {type(dtype).__name__}")
        if dtype not in SPEC_DTYPES:
            raise unknown_dtype(dtype)
        self._name = SPEC_DTYPES[dtype]
        self._shape = [_unsigned(extent, "an extent") for extent in shape]
        self._data_ptr = _unsigned(data_ptr, "data_ptr")
        self._data_len = _unsigned(data_len, "data_len")
        if self._name == "f4_e2m1" and self._shape:
            self._shape[-1] *= 2

    @property
    def dtype(self) -> str:
        """The dtype as in a file's header: ``"F32"``."""
        return CODES[self._name]

    @property
    def shape(self) -> list[int]:
        """The shape as in a file's header."""
        return list(self._shape)

    @property
    def data_ptr(self) -> int:
        """The address of the elements."""
        return self._data_ptr

    @property
    def data_len(self) -> int:
        """The number of bytes."""
        return self._data_len

    def __repr__(self) -> str:
        return (
            f"TensorSpec(dtype={self.dtype!r}, shape={self._shape}, data_ptr={self._data_ptr}, "
            f"data_len={self._data_len})"
        )


def _unsigned(number: Any, what: str) -> int:
    value = operator.index(number)
    if not 0 <= value < 1 << 64:
        raise OverflowError(f"TensorSpec: {what} is not a number from 0 to 2^64 - 1: {value}")
    return value


def row_of(name: str, spec: Any) -> tuple[Any, ...]:
    """Returns a row of _stele.build() for a TensorSpec."""
    if not isinstance(spec, TensorSpec):
        raise TypeError(f"{name}: a TensorSpec is expected, not {type(spec).__name__}")
    bits = math.prod(spec._shape) * BITS[spec._name]
    # The address is only read as far as its length, which must be the one of dtype and shape.
    if bits % 8 or bits // 8 != spec._data_len or (spec._data_len and not spec._data_ptr):
        error = error_of(f"{_WRITING}: {name}: dtype, shape, address and length do not fit together: {spec}")
        error.code, error.path, error.found = "invalid_argument", name, f"{spec._data_len} bytes"
        error.expected = f"{bits / 8:g} bytes"
        raise error
    return (name, spec._name, tuple(spec._shape), spec, spec._data_ptr, None, False)


def _rows_of(tensor_dict: Any) -> list[tuple[Any, ...]]:
    return [row_of(name, spec) for name, spec in items_of(tensor_dict)]


def bytes_of(rows: list[tuple[Any, ...]], metadata: Mapping[str, str] | None) -> bytes:
    """Returns the bytes of a file with rows of _stele.build()."""
    with translated(_WRITING, saving=True):
        data: bytes = save_any(_model_of(rows, strings_of(metadata)), format="safetensors")
        return data


def write(
    rows: list[tuple[Any, ...]], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None
) -> None:
    """Writes a file with rows of _stele.build(), in one step."""
    path = path_of(filename)
    with translated(_WRITING, saving=True):
        model = _model_of(rows, strings_of(metadata))
        if _keeps(path):
            save_any(model, path, format="safetensors")
        else:
            _save_under(model, path)


def _model_of(rows: list[tuple[Any, ...]], metadata: dict[str, str]) -> File:
    return File(_stele.build(_with_named_ties(rows, metadata), {}, metadata, None))


def _with_named_ties(rows: list[tuple[Any, ...]], metadata: dict[str, str]) -> list[tuple[Any, ...]]:
    """Adds the ties that the metadata name, {removed name: kept name}: the library would otherwise mark them as plain
    metadata in the file, which the package does not."""
    numbers = {row[0]: number for number, row in enumerate(rows)}
    for name, kept in sorted(metadata.items()):
        if name == "format" or not name or name in numbers or kept not in numbers:
            continue
        if not any(other.startswith(name + ".") for other in numbers):
            rows.append((name, numbers[kept]))
    return rows


def _keeps(path: str) -> bool:
    """Returns true if the library saves to this very path; to a new name without an extension, it adds its own."""
    folder, name = os.path.split(path)
    return "." in name[1:] or os.path.exists(path) or not os.path.isdir(folder or ".")


def _save_under(model: File, path: str) -> None:
    """Saves to a temporary name beside the path, and renames the file."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".stele-{secrets.token_hex(8)}.safetensors")
    try:
        save_any(model, temporary, format="safetensors")
        try:
            os.replace(temporary, path)
            directory = os.open(folder or ".", os.O_RDONLY)
            try:
                os.fsync(directory)  # the new name must survive a power loss, too
            finally:
                os.close(directory)
        except OSError as error:
            raise error_of(f"{_WRITING}: I/O error: {error.strerror}: {path}", None, _SavingError) from error
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these tensors.

    Raises:
        SafetensorError: the format cannot hold a tensor or a string.
        TypeError: a name is not a str, a tensor not a TensorSpec, a string of the metadata not a str.
    """
    return bytes_of(_rows_of(tensor_dict), metadata)


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file with these tensors, in one step: a reader sees the old file or the new one.

    Raises:
        SafetensorError: as :func:`serialize`; also an OSError if the file cannot be written.
    """
    write(_rows_of(tensor_dict), filename, metadata)
