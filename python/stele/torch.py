"""Torch tensors and modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch as _torch

from . import _modules, transforms
from ._errors import Report
from ._file import File, open  # noqa: A004
from ._interrupt import Progress
from ._save import save
from ._torch_tensors import place_of

__all__ = ["load_file", "load_model", "save_file", "save_model"]


def save_file(tensors: Mapping[str, Any], path: Any, **options: Any) -> Report:
    """Saves a dict of tensors; `options` are those of :func:`stele.save`."""
    report: Report = save(tensors, path, **options)
    return report


def load_file(path: Any, device: Any = "cpu", **options: Any) -> dict[str, _torch.Tensor]:
    """Loads all tensors of a file; `options` are those of :func:`stele.open`. On a device of CUDA or ROCm, they are read
    straight into its memory."""
    place = place_of(device)
    with open(path, **options) as file:
        if place is not None:
            return {name: tensor.torch() for name, tensor in file.to_device(place).items()}
        tensors = file.torch()
    return tensors if str(device) == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}


def save_model(model: _torch.nn.Module, path: Any, **options: Any) -> Report:
    """Saves the parameters, buffers and extra state of a module under PyTorch's names. Tensors under several names are
    saved once, where the format has ties, and under each name where it does not. Extra state is of tensors, and of
    numbers, strings, lists and dicts in formats that have values."""
    tensors, values, _ = _modules.state_of(model)
    report: Report = save(tensors, path, values={**values, **(options.pop("values", None) or {})}, **options)
    return report


def load_model(
    model: _torch.nn.Module,
    path: Any,
    strict: bool = True,
    *,
    device: Any = None,
    assign: bool = False,
    dequantize: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[list[str], list[str]]:
    """Loads a module's parameters, buffers and extra state by its ``load_state_dict``, with its hooks. Tensors are read
    straight into the module's memory.

    All names and shapes are compared before the first tensor changes, except those of parts that have code of their own
    for loads. Another dtype is converted, as in PyTorch.

    Args:
        strict: missing or unexpected names are an error (RuntimeError), as in ``load_state_dict``.
        device: where tensors are made with `assign`.
        assign: replaces the parameters, like ``load_state_dict(assign=True)``: for modules on the device meta, which are
            an error without it. Names of one parameter stay names of one, if the file has one tensor, or equal ones, for
            them.
        dequantize: makes f32 of blocks (``q4_K``) and quantized integers, as :func:`stele.transforms.dequantize` does; a
            tensor in blocks is an error without it.

    Returns:
        The missing and the unexpected names.
    """
    file = path if isinstance(path, File) else open(path, **options)
    if dequantize:
        file = transforms.dequantize(file)
    return _modules.load(model, file, strict, device=device, assign=assign, progress=progress)
