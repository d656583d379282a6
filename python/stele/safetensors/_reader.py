"""Tensors of an opened file in the form of a framework."""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _dtypes
from .._file import File
from .._tensor import Tensor, box
from ._dtypes import CODES, PACKED
from ._errors import SafetensorError, error_of, translated
from ._index import checked

Array = np.ndarray[Any, Any]


def _named_ties(file: File) -> set[str]:
    """Returns the names that the file has only as keys of its metadata, {removed name: kept name}: the package does not
    know these ties."""
    pairs = {name: kept for name, kept in file.metadata.items() if name != "format"}
    leaves = file._index() if pairs else {}
    return {name for name, kept in pairs.items() if name != kept and leaves.get(name, -1) == leaves.get(kept, -2)}


class Reader:
    """Tensors of an opened file in the form of a framework.

    `own`: tensors have memory of their own, which is read; otherwise those of torch are views of a private mapping.
    """

    def __init__(self, file: File, framework: str, device: str | int = "cpu", *, own: bool = True) -> None:
        self.file = file
        self._tied = _named_ties(file)
        self._framework = framework
        self._device = device
        self._own = own
        self._lock = threading.Lock()
        self._views: dict[int, Array] | None = None

    def names(self) -> list[str]:
        """Returns the names of the tensors, in the order of the file."""
        return [name for name in self.file if name not in self._tied]

    def find(self, name: str) -> Tensor:
        """Returns a tensor of the file. Errors: SafetensorError, TypeError."""
        if not isinstance(name, str):
            raise TypeError(f"a tensor's name must be str, not {type(name).__name__}: {name!r}")
        if name not in self.file or name in self._tied:
            raise self.failed(f"File does not contain tensor {name}", "not_found", name)
        return self.file[name]

    def failed(self, text: str, code: str, name: str) -> SafetensorError:
        """Returns an error about a tensor."""
        error = error_of(text)
        error.code, error.path, error.file = code, name, self.file.path or ""
        return error

    def tensor(self, name: str) -> Any:
        """Returns a tensor."""
        found = self.find(name)
        if self._framework != "pytorch":
            return self._converted(self._read([found])[0])
        if self._is_cuda():
            return self._pinned(found).to(self._device)
        return self._to_device(self._on_cpu(found))

    def tensors(self) -> dict[str, Any]:
        """Returns all tensors, in the order of the file."""
        if self._framework == "pytorch" and (not self._own or self._device != "cpu"):
            return {name: self.tensor(name) for name in self.names()}
        found = [self.file[name] for name in self.names()]
        if self._framework != "pytorch":
            return {t.name: self._converted(array) for t, array in zip(found, self._read(found))}
        whole = [t for t in found if t.dtype_name not in PACKED]
        arrays = dict(zip((t.name for t in whole), self._read(whole)))
        return {t.name: self._torch(arrays[t.name], t) if t.name in arrays else self._on_cpu(t) for t in found}

    def part(self, name: str, index: Any) -> Any:
        """Returns a part of a tensor, of which only that part is read."""
        found = self.find(name)
        if self._framework == "pytorch" and (not self._own or found.dtype_name in PACKED):
            return self._to_device(self._on_cpu(found)[index])
        index = checked(index, found.shape, lambda text, code: self.failed(text, code, name))
        reader = self.file._opened.reader
        with translated("Error while reading"):
            if found.dtype_name in PACKED:
                array = found.numpy()
                if array.shape != found.shape:
                    raise self.failed(f"{name}: parts of {CODES[found.dtype_name]} need ml_dtypes", "unsupported", name)
                array = array[index + (...,)]
            elif not self._own and reader.viewable(found._leaf, True):
                array = found.numpy()[index + (...,)]
            else:
                start, length, after = box(index, found.shape)
                part = reader.region(found._leaf, start, length)
                array = _dtypes.view_as(part, found.dtype_name, part.shape)[after + (...,)]
        if not (array.flags.c_contiguous and array.flags.writeable and array.flags.aligned):
            array = array.copy()
        if self._framework == "pytorch":
            return self._to_device(self._torch(array, found))
        return self._converted(array)

    def metadata(self) -> dict[str, str] | None:
        """Returns the strings in the header; None if there are none."""
        metadata = dict(self.file.metadata)
        if metadata or self.file.path is None:
            return metadata or None
        # The library does not tell an empty object from none, and keeps its own string to itself.
        with contextlib.suppress(OSError, ValueError), open(self.file.path, "rb") as stream:
            header = stream.read(int.from_bytes(stream.read(8), "little"))
            if b'"__metadata__"' in header and json.loads(header).get("__metadata__") is not None:
                return {}
        return None

    def raw(self) -> Iterator[tuple[str, str, tuple[int, ...], bytearray]]:
        """Returns names, dtypes, shapes and bytes of all tensors."""
        for found in map(self.file.__getitem__, self.names()):
            yield found.name, CODES[found.dtype_name], found.shape, bytearray(self._bytes(found))

    def _bytes(self, found: Tensor) -> Array:
        """Returns the bytes of a tensor: a view, or read."""
        with translated("Error while reading"):
            array: Array = self.file._opened.reader.arrays([found._leaf], False, False, False, None)[0]
        return array.reshape(-1).view(np.uint8)

    def _read(self, found: list[Tensor]) -> list[Array]:
        """Returns arrays that can be changed; views that cannot, where the framework copies them."""
        view = not self._own and self._framework in ("flax", "mlx", "paddle")
        with translated("Error while reading"):
            return self.file._opened.arrays(found, copy=not view, writable=not view)

    def _mapped(self) -> dict[int, Array]:
        """Returns the elements of all aligned tensors, as views of one private mapping, by their numbers in the file.

        One mapping for each tensor would exceed the system's number of mappings (65530 on Linux) with large models.
        """
        with self._lock:
            if self._views is None:
                reader = self.file._opened.reader
                leaves = [leaf for leaf in dict.fromkeys(self.file._index().values()) if reader.viewable(leaf, True)]
                with translated("Error while reading"):
                    self._views = dict(zip(leaves, reader.arrays(leaves, False, True, False, None)))
            return self._views

    # --- torch ---

    def _on_cpu(self, found: Tensor) -> Any:
        """Returns a torch tensor: a view of the mapping, or read."""
        packed = found.dtype_name in PACKED
        array = None if self._own else self._mapped().get(found._leaf)
        if array is None:
            array = self._bytes(found).copy() if packed else self._read([found])[0]
        elif not packed:
            array = _dtypes.view_as(array, found.dtype_name, found.shape)
        return self._torch(array, found)

    def _torch(self, array: Array, found: Tensor) -> Any:
        """Returns a torch tensor with an array's memory; F4 has raw bytes, all of them."""
        import torch

        from .. import _torch_tensors

        known, shape = self._torch_type(found)
        if found.dtype_name in PACKED:
            return torch.from_numpy(array.reshape(-1)).view(known).reshape(shape)
        return _torch_tensors.tensor_of(array, found.dtype_name)

    def _torch_type(self, found: Tensor) -> tuple[Any, tuple[int, ...]]:
        """Returns dtype and shape in torch, whose elements of F4 are pairs. Errors: SafetensorError."""
        from .. import _torch_tensors

        name, code = found.name, CODES[found.dtype_name]
        known = _torch_tensors.type_of(found.dtype_name, found.shape)
        if known is None and found.dtype_name == "f4_e2m1" and _torch_tensors.FLOAT4 is not None:
            text = f"{name}: torch has only pairs of F4 elements; the shape is {list(found.shape)}"
            raise self.failed(text, "unsupported", name)
        if known is None:
            raise self.failed(f"Dtype not understood: {code}: torch has none for {name}", "unsupported", name)
        return known

    def _is_cuda(self) -> bool:
        """Returns true if the device is a GPU of CUDA, to which pinned memory is copied fastest."""
        if isinstance(self._device, str):
            return self._device.partition(":")[0] == "cuda"
        import torch

        return bool(torch.device(self._device).type == "cuda")

    def _pinned(self, found: Tensor, *, pin: bool = True) -> Any:
        """Returns a tensor in pinned memory of the CPU, read from the file."""
        import torch

        known, shape = self._torch_type(found)
        host = torch.empty(shape, dtype=known, device="cpu", pin_memory=pin)
        if host.numel():
            memory = host.reshape(-1).view(torch.uint8).numpy()
            with translated("Error while reading"):
                self.file._opened.reader.read_into(found._leaf, memory, None)
        return host

    def _to_device(self, tensor: Any) -> Any:
        return tensor if self._device == "cpu" else tensor.to(self._device)

    # --- other frameworks ---

    def _converted(self, array: Array) -> Any:
        """Returns an array as a tensor of a framework other than torch."""
        if self._framework == "numpy":
            return array
        if self._framework == "tensorflow":
            return importlib.import_module("tensorflow").convert_to_tensor(array)
        if self._framework == "flax":
            return importlib.import_module("jax.numpy").array(array)
        if self._framework == "mlx":
            return importlib.import_module("mlx.core").array(array)
        return _paddle_tensor(array, self._device)


def _paddle_tensor(array: Array, device: str | int = "cpu") -> Any:
    """Returns an array as a tensor of Paddle, which knows no dtype of ml_dtypes: their bytes are viewed."""
    paddle = importlib.import_module("paddle")
    place = f"gpu:{device}" if isinstance(device, int) else device.replace("cuda", "gpu")
    name = _dtypes.NAMES.get(array.dtype.name)
    if name not in _dtypes.ML_DTYPES:
        return paddle.to_tensor(array, place=place)
    raw = paddle.to_tensor(array.view(np.int16 if name == "bf16" else np.uint8), place=place)
    return raw.view(getattr(paddle, array.dtype.name))
