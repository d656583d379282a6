"""Paddle tensors in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import paddle  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import (
    TensorSpec,
    _items,
    _load,
    _not_contiguous,
    _path,
    _row_of,
    _write,
    deserialize,
    numpy,
    safe_open,
    serialize,
    serialize_file,
)

__all__ = [
    "TensorSpec",
    "deserialize",
    "load",
    "load_file",
    "numpy",
    "safe_open",
    "save",
    "save_file",
    "serialize",
    "serialize_file",
]


def _rows(tensors: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Returns rows for tensors. Errors: ValueError as in safetensors, SafetensorError, TypeError."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, paddle.Tensor] but received {type(tensors)}")
    rows = []
    for name, tensor in _items(tensors):
        if not isinstance(tensor, paddle.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected paddle.Tensor but received {type(tensor)}")
        if not tensor.is_contiguous():
            raise _not_contiguous(name)
        if not tensor.place.is_cpu_place():
            tensor = tensor.cpu()
        size = tensor.size * tensor.element_size()
        spec = TensorSpec(
            dtype=str(tensor.dtype).rpartition(".")[2],
            shape=tensor.shape,
            data_ptr=tensor.data_ptr() if size else 0,
            data_len=size,
        )
        row = _row_of(name, spec)
        rows.append((*row[:3], tensor, *row[4:]))  # the row keeps the tensor alive
    return rows


def save(tensors: Mapping[str, paddle.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these tensors. Errors: SafetensorError, TypeError, ValueError."""
    data: bytes = _write(_rows(tensors), metadata)
    return data


def save_file(
    tensors: Mapping[str, paddle.Tensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file with these tensors, in one step. Errors: SafetensorError, TypeError, ValueError."""
    _write(_rows(tensors), metadata, _path(filename))


def load(data: bytes, device: str = "cpu") -> dict[str, paddle.Tensor]:
    """Returns the tensors in a file's bytes. Errors: SafetensorError."""
    return _load(data, "paddle", device)


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, paddle.Tensor]:
    """Returns the tensors in a file. Errors: SafetensorError, OSError."""
    with safe_open(filename, framework="paddle", device=device, backend=backend) as file:
        return file.get_tensors()
