"""Torch tensors and modules in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .. import _torch_tensors
from . import TensorSpec, deserialize, safe_open, serialize, serialize_file
from ._arguments import check_tensors, items_of, not_contiguous
from ._dtypes import CODES, unknown_dtype
from ._safe_open import load_bytes, load_path
from ._saving import bytes_of, write

__all__ = [
    "TensorSpec",
    "deserialize",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "serialize",
    "serialize_file",
    "storage_ptr",
    "storage_size",
]

_FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)  # pairs of elements; since torch 2.8

_TYPES: dict[str, torch.dtype] = {
    code: _torch_tensors.BY_NAME[name] for name, code in CODES.items() if name in _torch_tensors.BY_NAME
}
if _FLOAT4 is not None:
    _TYPES["F4"] = _FLOAT4
_SIZE: dict[torch.dtype, int] = {dtype: dtype.itemsize for dtype in _TYPES.values()}


def _getdtype(dtype_str: str) -> torch.dtype:
    return _TYPES[dtype_str]


# --- tensors that share memory ---


def storage_ptr(tensor: torch.Tensor) -> int:
    """Returns the address of a tensor's storage; 0 if it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


def storage_size(tensor: torch.Tensor) -> int:
    """Returns the size of a tensor's storage in bytes; of the tensor, if it has none."""
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return tensor.nelement() * tensor.element_size()


def _end_ptr(tensor: torch.Tensor) -> int:
    """Returns the address after a tensor's last element."""
    if not tensor.nelement():
        return tensor.data_ptr()
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _is_complete(tensor: torch.Tensor) -> bool:
    """Returns true if a tensor has its whole storage."""
    whole = tensor.nelement() * tensor.element_size() == storage_size(tensor)
    return whole and tensor.data_ptr() == storage_ptr(tensor)


def _find_shared_tensors(state_dict: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Returns the names in groups whose tensors overlap; a tensor that overlaps with none is a group."""
    storages: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in state_dict.items():
        if tensor.device.type == "meta":
            continue
        address, size = storage_ptr(tensor), storage_size(tensor)
        if address and size:
            storages.setdefault((tensor.device, address, size), []).append(name)
    groups: list[set[str]] = []
    for names in storages.values():
        end = None
        ranges = sorted((state_dict[name].data_ptr(), _end_ptr(state_dict[name]), name) for name in names)
        for begin, next_end, name in ranges:
            if end is not None and begin < end:
                groups[-1].add(name)
            else:
                groups.append({name})
            end = next_end  # of the previous tensor only, as in safetensors: others would refuse more models
    return groups


def _remove_duplicate_names(
    state_dict: Mapping[str, torch.Tensor],
    *,
    preferred_names: Iterable[str] | None = None,
    discard_names: Iterable[str] | None = None,
) -> dict[str, list[str]]:
    """Returns the names to leave out, by the name that stays for them.

    Of tensors that share memory one stays that has the whole storage: the first by name of `preferred_names`, or else
    of those that are not in `discard_names`.

    Raises:
        RuntimeError: none of them has the whole storage.
    """
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    removed: dict[str, list[str]] = {}
    for group in _find_shared_tensors(state_dict):
        complete = {name for name in group if _is_complete(state_dict[name])}
        if not complete:
            raise RuntimeError(
                f"None of the tensors {sorted(group)} has its whole storage, so none can stand for the others. Copy"
                " them with .clone() before saving."
            )
        kept = min(complete & preferred or complete - discarded or complete)
        if len(group) > 1:
            removed[kept] = sorted(group - {kept})
    return removed


# --- saving ---


def _rows(tensors: Mapping[str, torch.Tensor]) -> list[tuple[Any, ...]]:
    """Returns rows for tensors. Errors: ValueError, RuntimeError, SafetensorError, as in safetensors."""
    check_tensors(tensors, torch.Tensor, "torch.Tensor")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support. You can make it"
            " a dense tensor before saving with `.to_dense()` but be aware this might make a much larger file than"
            " needed."
        )
    shared = [sorted(group) for group in _find_shared_tensors(tensors) if len(group) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, which this format cannot express: {shared}. save_model() saves one name of"
            " each; .clone() makes a tensor with memory of its own."
        )
    return [_row(name, tensor) for name, tensor in items_of(tensors)]


def _row(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
    if not tensor.is_contiguous():
        raise not_contiguous(name)
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.to("cpu")
    _torch_tensors.check_memory(tensor, name)
    if _FLOAT4 is not None and tensor.dtype == _FLOAT4:
        shape = (*tensor.shape[:-1], 2 * tensor.shape[-1]) if tensor.dim() else ()
        return (name, "f4_e2m1", shape, tensor, tensor.data_ptr(), None, False)
    if tensor.dtype not in _SIZE:
        raise unknown_dtype(tensor.dtype, name)
    dtype, shape, strides, address, owner, _ = _torch_tensors.describe(tensor, name)
    return (name, dtype, shape, owner, address, strides, False)


def save(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these tensors, which are contiguous and share no memory.

    Raises:
        RuntimeError: tensors share memory.
        ValueError: a tensor is not contiguous, sparse, or not a tensor.
        SafetensorError: the format has no such dtype.
    """
    return bytes_of(_rows(tensors), metadata)


def save_file(
    tensors: Mapping[str, torch.Tensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file with these tensors, in one step; as :func:`save`."""
    write(_rows(tensors), filename, metadata)


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Writes a module's state_dict. Of names that share a tensor one is saved; the metadata has the others:
    ``{other: saved}``.

    Args:
        force_contiguous: copies tensors that are not contiguous; otherwise they are a ValueError.
    """
    tensors: dict[str, torch.Tensor] = dict(model.state_dict())
    strings = dict(metadata or {})
    for kept, others in _remove_duplicate_names(tensors).items():
        for other in others:
            strings.setdefault(other, kept)
            del tensors[other]
    scattered = [name for name, tensor in tensors.items() if not tensor.is_contiguous()]
    if scattered and not force_contiguous:
        raise ValueError(
            f"You are trying to save non contiguous tensors: `{scattered}`. Call `.contiguous()` on them, or"
            " use save_model(..., force_contiguous=True)."
        )
    for name in scattered:
        tensors[name] = tensors[name].contiguous()
    save_file(tensors, filename, strings or None)


# --- loading ---


def load(data: bytes) -> dict[str, torch.Tensor]:
    """Returns the tensors in a file's bytes, copied. Errors: SafetensorError."""
    return load_bytes(data, "pytorch")


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, torch.Tensor]:
    """Returns the tensors in a file: on the CPU, views of a private mapping; with ``backend="pread"``, read.

    Raises:
        FileNotFoundError: the file does not exist.
        SafetensorError: the content is not a safetensors file.
    """
    return load_path(filename, "pt", device, backend=backend)


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: str | int = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[set[str], list[str]]:
    """Loads a file into a module, by ``load_state_dict``.

    Names that share a tensor in the module need one of them in the file.

    Returns:
        The names that are missing in the file, and those that the module does not have.

    Raises:
        RuntimeError: names are missing or unexpected, if `strict`; or a shape differs.
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        tensors = file.get_tensors()
        leaves = dict(file._opened().file._index())
    groups = _remove_duplicate_names(model.state_dict(), preferred_names=tensors)
    absent, unexpected = model.load_state_dict(tensors, strict=False)
    missing = set(absent)
    for kept, others in groups.items():
        for other in others:
            if other in missing:
                missing.remove(other)
            elif leaves[other] != leaves.get(kept):  # a tie in the file is one tensor too
                unexpected.append(other)
    if strict and (missing or unexpected):
        text = f"Error(s) in loading state_dict for {type(model).__name__}:"
        for what, names in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if names:
                text += f"\n    {what} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in names)
        raise RuntimeError(text)
    return missing, unexpected
