"""MLX arrays in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import mlx.core as mx  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from . import numpy
from ._arguments import items_of
from ._safe_open import load_bytes, load_path

__all__ = ["load", "load_file", "save", "save_file"]


def _arrays(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(tensor) for name, tensor in items_of(tensors)}


def save(tensors: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these arrays. Errors: SafetensorError, TypeError."""
    return numpy.save(_arrays(tensors), metadata)


def save_file(
    tensors: Mapping[str, mx.array], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a file with these arrays, in one step. Errors: SafetensorError, TypeError."""
    numpy.save_file(_arrays(tensors), filename, metadata)


def load(data: bytes) -> dict[str, mx.array]:
    """Returns the arrays in a file's bytes. Errors: SafetensorError."""
    return load_bytes(data, "mlx")


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, mx.array]:
    """Returns the arrays in a file. Errors: SafetensorError, OSError."""
    return load_path(filename, "mlx", backend=backend)
