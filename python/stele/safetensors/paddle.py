"""Paddle tensors in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import paddle  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import TensorSpec, deserialize, numpy, safe_open, serialize, serialize_file
from ._arguments import check_tensors, items_of, not_contiguous
from ._safe_open import load_bytes, load_path
from ._saving import bytes_of, row_of, write

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
    check_tensors(tensors, paddle.Tensor, "paddle.Tensor")
    rows = []
    for name, tensor in items_of(tensors):
        if not tensor.is_contiguous():
            raise not_contiguous(name)
        if not tensor.place.is_cpu_place():
            tensor = tensor.cpu()
        size = tensor.size * tensor.element_size()
        spec = TensorSpec(
            dtype=str(tensor.dtype).rpartition(".")[2],
            shape=tensor.shape,
            data_ptr=tensor.data_ptr() if size else 0,
            data_len=size,
        )
        row = row_of(name, spec)
        rows.append((*row[:3], tensor, *row[4:]))  # the row keeps the tensor alive
    return rows


def save(tensors: Mapping[str, paddle.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these tensors. Errors: SafetensorError, TypeError, ValueError."""
    return bytes_of(_rows(tensors), metadata)


def save_file(
    tensors: Mapping[str, paddle.Tensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file with these tensors, in one step. Errors: SafetensorError, TypeError, ValueError."""
    write(_rows(tensors), filename, metadata)


def load(data: bytes, device: str = "cpu") -> dict[str, paddle.Tensor]:
    """Returns the tensors in a file's bytes. Errors: SafetensorError."""
    return load_bytes(data, "paddle", device)


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, paddle.Tensor]:
    """Returns the tensors in a file. Errors: SafetensorError, OSError."""
    return load_path(filename, "paddle", device, backend=backend)
