"""Opened file -> opened file: chooses, renames, joins and converts tensors. Elements are read when the result is saved
or asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _stele
from ._errors import Report
from ._file import File
from ._options import dtype_name

__all__ = [
    "adapt",
    "apply_delta",
    "dequantize",
    "filter",
    "make_delta",
    "merge",
    "merge_lora",
    "overlay",
    "part",
    "precision",
    "quantize",
    "rename",
    "reshape",
    "split_composites",
    "transpose",
    "with_prefix",
]


def _patterns(patterns: str | Sequence[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def filter(file: File, include: str | Sequence[str] = (), exclude: str | Sequence[str] = ()) -> File:  # noqa: A001
    """Keeps the tensors that match a pattern of `include` (all, if there is none) and none of `exclude`. ``*`` in a
    pattern is any text: ``"encoder.*"``."""
    return File(_stele.filter(file._model, _patterns(include), _patterns(exclude)), keep=file._keep)


def rename(file: File, rules: Mapping[str, str]) -> File:
    r"""Replaces each match of a regular expression (RE2) in a name, in order; ``\1`` is a group."""
    return File(_stele.rename(file._model, list(rules), list(rules.values())), keep=file._keep)


def adapt(file: File, to: str = "pytorch") -> File:
    """Gives the layers of a Keras model, or of a file with class names (of C++ or Burn), the names and axes of PyTorch."""
    if to != "pytorch":
        raise ValueError(f"adapt: only 'pytorch' is known, not {to!r}")
    return File(_stele.adapt(file._model), keep=file._keep)


def part(file: File, path: str) -> File:
    """Returns the tensors below a path, under names relative to it."""
    return File(_stele.part(file._model, path), keep=file._keep)


def with_prefix(file: File, path: str) -> File:
    """Moves all tensors below a path."""
    return File(_stele.with_prefix(file._model, path), keep=file._keep)


def transpose(file: File, pattern: str, axes: Sequence[int] = ()) -> File:
    """Permutes the axes of the matching tensors; without `axes`, reverses them."""
    return File(_stele.transpose(file._model, pattern, list(axes)), keep=file._keep)


def reshape(file: File, pattern: str, shape: Sequence[int]) -> File:
    """Gives the matching tensors another shape with as many elements."""
    return File(_stele.reshape(file._model, pattern, list(shape)), keep=file._keep)


def merge(files: Sequence[File]) -> File:
    """Joins files; a name in two of them is an error."""
    return File(_stele.merge([file._model for file in files]), keep=[file._keep for file in files])


def overlay(files: Sequence[File]) -> File:
    """Joins files; a tensor of a later file replaces that of the same name."""
    return File(_stele.overlay([file._model for file in files]), keep=[file._keep for file in files])


def precision(file: File, precision: Any, only: str | Sequence[str] = (), *, allow_overflow: bool = False) -> File:
    """Converts floats to ``f64``, ``f32``, ``f16`` or ``bf16``, or matrices to blocks (``q8_0``, ``q4_K``, ...,
    ``Q4_K_M``); `only`: in the tensors that match a pattern."""
    name = dtype_name(precision)
    return File(_stele.with_precision(file._model, name, _patterns(only), allow_overflow), keep=file._keep)


def quantize(file: File, bits: int = 8, only: str | Sequence[str] = "*") -> tuple[File, Report]:
    """Converts floats to integers of 2 to 8 bits. Returns the file, and a row with range and error for each tensor."""
    model, report = _stele.quantize(file._model, bits, _patterns(only))
    return File(model, keep=file._keep), report


def dequantize(file: File, only: str | Sequence[str] = "*") -> File:
    """Converts quantized tensors and blocks to f32."""
    return File(_stele.dequantize(file._model, _patterns(only)), keep=file._keep)


def make_delta(old: File, new: File) -> File:
    """Returns what changed between two versions of a model, to be saved as ``.stele``. Reads both."""
    return File(_stele.make_delta(old._model, new._model), keep=(old._keep, new._keep))


def apply_delta(file: File, delta: File) -> File:
    """Returns the version that a delta gives. Its tensors are decoded when they are read, and checked.

    Raises:
        FormatError: `file` is not the base of the delta; for files without checksums, when a tensor is read.
    """
    return File(_stele.apply_delta(file._model, delta._model), keep=(file._keep, delta._keep))


def split_composites(file: File) -> File:
    """Shows quantized weights as the tensors that the file stores: codes, scales, zero points."""
    return File(_stele.split_composites(file._model), keep=file._keep)


def merge_lora(
    file: File,
    adapter: File,
    config: Mapping[str, Any] | None = None,
    *,
    subtract: bool = False,
    conv1d: str | Sequence[str] = (),
    linear: str | Sequence[str] = (),
) -> File:
    """Adds an adapter of PEFT to a model, or with `subtract` takes it out. Weights are computed in f32 when they are read,
    and rounded once to the model's dtype.

    Args:
        config: the content of ``adapter_config.json``; by default that of the adapter's folder.
        conv1d, linear: patterns of layers with weights ``[in, out]`` (``Conv1D`` of transformers), and ``[out, in]``
            (``Linear``), for square weights of a model that leaves it open.

    Raises:
        KeyNotFoundError: the model lacks a tensor of the adapter.
        FormatError: shapes or dtypes do not fit, or a kind of adapter that is not merged.
    """
    if config is None:
        if adapter.path is None:
            raise ValueError("merge_lora: an adapter without a path needs config")
        folder = adapter.path if os.path.isdir(adapter.path) else os.path.dirname(adapter.path)
        with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as stream:
            config = json.load(stream)
    merged = _stele.merge_lora(
        file._model, adapter._model, dict(config or {}), subtract, _patterns(conv1d), _patterns(linear)
    )
    return File(merged, keep=(file._keep, adapter._keep))
