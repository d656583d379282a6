"""Torch tensors as memory, and arrays as torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import _drivers, _dtypes

if TYPE_CHECKING:
    from ._tensor import Tensor

DTYPES = {getattr(torch, other): name for name, other in _dtypes.TORCH.items() if hasattr(torch, other)}
BY_NAME = {name: dtype for dtype, name in DTYPES.items()}
FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)  # pairs of elements; since torch 2.8
if FLOAT4 is not None:
    DTYPES[FLOAT4] = "f4_e2m1"


def type_of(dtype: str, shape: tuple[int, ...]) -> tuple[torch.dtype, tuple[int, ...]] | None:
    """Returns the dtype and shape that torch has for a tensor of a file; None if it has no such dtype. Its elements of
    f4_e2m1 are pairs, so the last extent must be even."""
    if dtype == "f4_e2m1" and FLOAT4 is not None and shape and shape[-1] % 2 == 0:
        return FLOAT4, (*shape[:-1], shape[-1] // 2)
    known = BY_NAME.get(dtype)
    return None if known is None else (known, shape)


def shape_of(tensor: torch.Tensor, name: str) -> tuple[int, ...]:
    """Returns the shape of a tensor's elements, which type_of() makes torch's of."""
    if tensor.dtype != FLOAT4:
        return tuple(tensor.shape)
    if not tensor.dim():
        raise TypeError(f"{name}: a pair of float4 without axes cannot be saved; use .reshape(1)")
    return (*tensor.shape[:-1], 2 * tensor.shape[-1])


def tensor_of_file(array: np.ndarray[Any, Any], found: Tensor) -> torch.Tensor:
    """Returns a torch tensor with the memory of an array of _stele.Reader, for a tensor of a file."""
    known = type_of(found.dtype_name, found.shape)
    if known is not None and known[0] == FLOAT4:
        flat = array.reshape(-1).view(np.uint8)
        return torch.from_numpy(flat if flat.flags.writeable else flat.copy()).view(known[0]).reshape(known[1])
    return tensor_of(_dtypes.view_as(array, found.dtype_name, found.shape), found.dtype_name, found.name)


def tensor_of(array: np.ndarray[Any, Any], dtype: str, name: str = "tensor") -> torch.Tensor:
    """Returns a torch tensor with an array's memory; `dtype` is the library's name. `name` is for errors."""
    wanted = BY_NAME.get(dtype)
    if dtype in _dtypes.NUMPY and wanted is not None:
        if not array.flags.writeable:
            array = array.copy()
        return torch.from_numpy(array)
    if dtype in _dtypes.ML_DTYPES and wanted is not None:
        raw = array.view(np.uint16 if dtype == "bf16" else np.uint8)
        if not raw.flags.writeable:
            raw = raw.copy()
        return torch.from_numpy(raw).view(wanted)
    if dtype in _dtypes.PACKED or dtype in _dtypes.PACKED_6:
        text = "torch has only pairs of f4_e2m1, and the last extent is odd" if dtype == "f4_e2m1" and FLOAT4 is not None else (
            f"torch has no dtype for {dtype}"
        )
        raise TypeError(f"{name}: {text}; numpy() has")
    return torch.from_numpy(array.view(np.uint8) if array.flags.writeable else array.view(np.uint8).copy())


def describe(
    tensor: torch.Tensor, name: str
) -> tuple[str, tuple[int, ...], tuple[int, ...] | None, int, Any, tuple[Any, ...] | None]:
    """Returns dtype, shape, strides in bytes (None: contiguous), address, owner, and what equals for shared tensors."""
    if torch.nn.parameter.is_lazy(tensor):
        raise TypeError(f"{name}: a parameter without a shape cannot be saved; run the module once")
    if _is_transformed(tensor):
        raise TypeError(f"{name}: a tensor inside of a transform of torch.func has no memory")
    tensor = tensor.detach()
    if tensor.is_nested:
        raise TypeError(f"{name}: a nested tensor cannot be saved; use .unbind()")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name}: a tensor with the layout {tensor.layout} cannot be saved; use .to_dense()")
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise TypeError(f"{name}: no format has the dtype {tensor.dtype}")
    if tensor.device.type == "meta":
        raise TypeError(f"{name}: a tensor on the device meta has no elements")
    if tensor.device.type in ("cpu", "cuda"):  # others may have no addresses
        check_memory(tensor, name)
    shared = _shared(tensor)
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
        check_memory(tensor, name)
    shape = shape_of(tensor, name)
    if tensor.dtype == FLOAT4:
        tensor = tensor.view(torch.uint8).contiguous()
    size = tensor.element_size()
    strides = None if tensor.is_contiguous() else tuple(stride * size for stride in tensor.stride())
    return dtype, shape, strides, tensor.data_ptr(), tensor, shared


def check_memory(tensor: torch.Tensor, name: str) -> None:
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


def _is_transformed(tensor: torch.Tensor) -> bool:
    functorch = getattr(torch._C, "_functorch", None)
    return functorch is not None and bool(functorch.is_functorch_wrapped_tensor(tensor))


def _shared(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    if not tensor.numel():
        return None
    part = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return part if tensor.device.type == "cpu" else (str(tensor.device), *part)


def row_of(tensor: torch.Tensor, name: str) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Returns the row of _stele.build() for a tensor, and what equals for shared tensors. A contiguous tensor on a
    device is read from there if the driver opens; otherwise it is copied to main memory first."""
    plain = not torch.nn.parameter.is_lazy(tensor) and not tensor.is_nested
    plain = plain and tensor.layout is torch.strided and tensor.dtype in DTYPES
    if plain and tensor.device.type == "cuda" and can_be_read(tensor) and _drivers.count(driver_kind()):
        memory = memory_of(tensor, name)
        place = (memory.driver, memory.ordinal)
        return (name, memory.dtype, memory.shape, memory.owner, memory.address, place), _shared(memory.owner)
    dtype, shape, strides, address, owner, shared = describe(tensor, name)
    return (name, dtype, shape, owner, address, strides, False), shared


def driver_kind() -> str:
    """Returns the driver of torch's devices "cuda"."""
    return "hip" if getattr(torch.version, "hip", None) else "cuda"


def can_be_read(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def memory_of(tensor: torch.Tensor, name: str) -> _drivers.Memory:
    """Returns the memory of a tensor on a device, after the work of its current stream."""
    tensor = tensor.detach()
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise TypeError(f"{name}: no format has the dtype {tensor.dtype}")
    if tensor.layout is not torch.strided or not can_be_read(tensor):
        raise ValueError(f"{name}: the elements are not contiguous in the memory of the device")
    check_memory(tensor, name)
    driver = _drivers.driver(driver_kind())
    torch.cuda.current_stream(tensor.device).synchronize()
    return _drivers.Memory(driver, tensor.get_device(), tensor.data_ptr(), dtype, shape_of(tensor, name), tensor)


def tensor_on_device(memory: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Returns a torch tensor with the memory of a device: its bytes, with DLPack, which in older versions of torch lacks
    8-bit floats."""
    known = type_of(dtype, shape)
    if known is None and (dtype in _dtypes.PACKED or dtype in _dtypes.PACKED_6):
        raise TypeError(f"torch has no dtype for {dtype}")
    wanted, shape = known or (None, shape)
    if memory.nbytes == 0:
        _, ordinal = memory.__dlpack_device__()
        return torch.empty(shape, dtype=wanted or torch.uint8, device=f"cuda:{ordinal}")
    raw = torch.from_dlpack(memory)  # type: ignore[attr-defined, unused-ignore]
    return raw if wanted is None else raw.view(wanted).reshape(shape)


def place_of(device: Any) -> str | None:
    """Returns the library's name of a device of torch, or None if no driver reaches it."""
    place = torch.device(device)
    if place.type != "cuda" or not _drivers.count(driver_kind()):
        return None
    return f"{driver_kind()}:{place.index if place.index is not None else torch.cuda.current_device()}"


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns a writable array of a CPU tensor's memory."""
    if tensor.device.type != "cpu":
        raise ValueError("read_into: the tensor must be on the CPU")
    tensor = tensor.detach()
    check_memory(tensor, "read_into")
    name = DTYPES.get(tensor.dtype)
    if tensor.dtype == FLOAT4:
        if not tensor.is_contiguous():
            raise ValueError("read_into: a tensor of float4 must be contiguous")
        flat: np.ndarray[Any, Any] = tensor.view(torch.uint8).numpy().reshape(-1)
        return flat
    if name in _dtypes.ML_DTYPES:
        raw = tensor.view(torch.uint16 if tensor.element_size() == 2 else torch.uint8).numpy()
        return _dtypes.view_as(raw, name, tuple(tensor.shape))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array
