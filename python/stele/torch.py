"""Torch tensors and modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as _torch

from . import _dtypes, devices
from ._errors import Report
from ._file import File, Progress, open  # noqa: A004
from ._save import save

__all__ = ["load_file", "load_model", "save_file", "save_model"]

_DTYPES = {
    getattr(_torch, other): name for name, other in _dtypes.TORCH.items() if hasattr(_torch, other)
}
_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}


def tensor_of(array: np.ndarray[Any, Any], dtype: str, name: str = "tensor") -> _torch.Tensor:
    """Returns a torch tensor with an array's memory; `dtype` is the library's name. `name` is for errors."""
    wanted = _BY_NAME.get(dtype)
    if dtype in _dtypes.NUMPY and wanted is not None:
        if not array.flags.writeable:
            array = array.copy()
        return _torch.from_numpy(array)
    if dtype in _dtypes.ML_DTYPES and wanted is not None:
        raw = array.view(np.uint16 if dtype == "bf16" else np.uint8)
        if not raw.flags.writeable:
            raw = raw.copy()
        return _torch.from_numpy(raw).view(wanted)
    if dtype in _dtypes.PACKED or dtype in _dtypes.PACKED_6:
        raise TypeError(f"{name}: torch has no dtype for {dtype}; numpy() has")
    return _torch.from_numpy(array.view(np.uint8) if array.flags.writeable else array.view(np.uint8).copy())


def describe(
    tensor: _torch.Tensor, name: str
) -> tuple[str, tuple[int, ...], tuple[int, ...] | None, int, Any, tuple[Any, ...] | None]:
    """Returns dtype, shape, strides in bytes (None: contiguous), address, owner, and what equals for shared tensors."""
    if _torch.nn.parameter.is_lazy(tensor):
        raise TypeError(f"{name}: a parameter without a shape cannot be saved; run the module once")
    if _is_transformed(tensor):
        raise TypeError(f"{name}: a tensor inside of a transform of torch.func has no memory")
    tensor = tensor.detach()
    if tensor.is_nested:
        raise TypeError(f"{name}: a nested tensor cannot be saved; use .unbind()")
    if tensor.layout is not _torch.strided:
        raise TypeError(f"{name}: a tensor with the layout {tensor.layout} cannot be saved; use .to_dense()")
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise TypeError(f"{name}: no format has the dtype {tensor.dtype}")
    if tensor.device.type == "meta":
        raise TypeError(f"{name}: a tensor on the device meta has no elements")
    if tensor.device.type in ("cpu", "cuda"):  # others may have no addresses
        _check_memory(tensor, name)
    shared = _shared(tensor)
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
        _check_memory(tensor, name)
    size = tensor.element_size()
    strides = None if tensor.is_contiguous() else tuple(stride * size for stride in tensor.stride())
    return dtype, tuple(tensor.shape), strides, tensor.data_ptr(), tensor, shared


def _check_memory(tensor: _torch.Tensor, name: str) -> None:
    """Checks that the elements are in memory: fake tensors, wrappers, and tensors whose storage was freed have none.

    Raises:
        TypeError: they are not.
    """
    if not tensor.numel():
        return
    end = tensor.storage_offset() + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride())) + 1
    needed, kind = end * tensor.element_size(), type(tensor).__name__
    try:
        size = tensor.untyped_storage().nbytes() if tensor.data_ptr() else 0
    except RuntimeError:  # also NotImplementedError
        size = 0
    if size >= needed:
        return
    if kind == "DTensor":
        raise TypeError(f"{name}: a DTensor has no memory of its own; use .full_tensor() or .to_local()")
    if _is_transformed(tensor):
        raise TypeError(f"{name}: a tensor inside of a transform of torch.func has no memory")
    if kind not in ("Tensor", "Parameter"):
        raise TypeError(f"{name}: a {kind} has no memory of its own; make a torch.Tensor of it")
    raise TypeError(
        f"{name}: the tensor's storage has {size} of {needed} bytes: it was freed, as FSDP does; gather the parameters first"
    )


def _is_transformed(tensor: _torch.Tensor) -> bool:
    functorch = getattr(_torch._C, "_functorch", None)
    return functorch is not None and bool(functorch.is_functorch_wrapped_tensor(tensor))


def _shared(tensor: _torch.Tensor) -> tuple[Any, ...] | None:
    if not tensor.numel():
        return None
    part = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return part if tensor.device.type == "cpu" else (str(tensor.device), *part)


def row_of(tensor: _torch.Tensor, name: str) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Returns the row of _stele.build() for a tensor, and what equals for shared tensors. A contiguous tensor on a
    device is read from there if the driver opens; otherwise it is copied to main memory first."""
    plain = not _torch.nn.parameter.is_lazy(tensor) and not tensor.is_nested
    plain = plain and tensor.layout is _torch.strided and tensor.dtype in _DTYPES
    if plain and tensor.device.type == "cuda" and _can_be_read(tensor) and devices.count(_kind()):
        memory = memory_of(tensor, name)
        place = (memory.driver, memory.ordinal)
        return (name, memory.dtype, memory.shape, memory.owner, memory.address, place), _shared(memory.owner)
    dtype, shape, strides, address, owner, shared = describe(tensor, name)
    return (name, dtype, shape, owner, address, strides, False), shared


def _kind() -> str:
    """Returns the driver of torch's devices "cuda"."""
    return "hip" if getattr(_torch.version, "hip", None) else "cuda"


def _can_be_read(tensor: _torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def memory_of(tensor: _torch.Tensor, name: str) -> devices.Memory:
    """Returns the memory of a tensor on a device, after the work of its current stream."""
    tensor = tensor.detach()
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise TypeError(f"{name}: no format has the dtype {tensor.dtype}")
    if tensor.layout is not _torch.strided or not _can_be_read(tensor):
        raise ValueError(f"{name}: the elements are not contiguous in the memory of the device")
    _check_memory(tensor, name)
    driver = devices.driver(_kind())
    _torch.cuda.current_stream(tensor.device).synchronize()
    return devices.Memory(driver, tensor.get_device(), tensor.data_ptr(), dtype, tuple(tensor.shape), tensor)


def tensor_on_device(tensor: devices.DeviceTensor) -> _torch.Tensor:
    """Returns a torch tensor with the memory of a tensor on a device."""
    if tensor.dtype in _dtypes.PACKED or tensor.dtype in _dtypes.PACKED_6:
        raise TypeError(f"torch has no dtype for {tensor.dtype}")
    wanted = _BY_NAME.get(tensor.dtype)
    if tensor.nbytes == 0:
        _, _, ordinal = tensor.device.partition(":")
        return _torch.empty(tensor.shape, dtype=wanted or _torch.uint8, device=f"cuda:{ordinal}")
    # Bytes, because DLPack in older versions of torch lacks 8-bit floats.
    raw = _torch.from_dlpack(tensor._bytes())  # type: ignore[attr-defined, unused-ignore]
    return raw if wanted is None else raw.view(wanted).reshape(tensor.shape)


def _place_of(device: Any) -> str | None:
    """Returns the library's name of a device of torch, or None if no driver reaches it."""
    place = _torch.device(device)
    if place.type != "cuda" or not devices.count(_kind()):
        return None
    return f"{_kind()}:{place.index if place.index is not None else _torch.cuda.current_device()}"


def array_of(tensor: _torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns a writable array of a CPU tensor's memory."""
    if tensor.device.type != "cpu":
        raise ValueError("read_into: the tensor must be on the CPU")
    tensor = tensor.detach()
    _check_memory(tensor, "read_into")
    name = _DTYPES.get(tensor.dtype)
    if name in _dtypes.ML_DTYPES:
        raw = tensor.view(_torch.uint16 if tensor.element_size() == 2 else _torch.uint8).numpy()
        return _dtypes.view_as(raw, name, tuple(tensor.shape))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def save_file(tensors: Mapping[str, Any], path: Any, **options: Any) -> Report:
    """Saves a dict of tensors; `options` are those of :func:`stele.save`."""
    report: Report = save(tensors, path, **options)
    return report


def load_file(path: Any, device: Any = "cpu", **options: Any) -> dict[str, _torch.Tensor]:
    """Loads all tensors of a file; `options` are those of :func:`stele.open`. On a device of CUDA or ROCm, they are read
    straight into its memory."""
    place = _place_of(device)
    with open(path, **options) as file:
        if place is not None:
            return {name: tensor.torch() for name, tensor in file.to_device(place).items()}
        tensors = file.torch()
    return tensors if str(device) == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}


def save_model(model: _torch.nn.Module, path: Any, **options: Any) -> Report:
    """Saves the parameters, buffers and extra state of a module under PyTorch's names. Tensors under several names are
    saved once, where the format has ties, and under each name where it does not. Extra state is of tensors, and of
    numbers, strings, lists and dicts in formats that have values."""
    from . import _modules

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

    Returns:
        The missing and the unexpected names.
    """
    from . import _modules

    file = path if isinstance(path, File) else open(path, **options)
    return _modules.load(model, file, strict, device=device, assign=assign, progress=progress)
