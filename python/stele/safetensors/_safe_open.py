"""Opened files with the names of safetensors."""

from __future__ import annotations

import importlib
import os
from typing import Any

from .._file import File
from ._arguments import opening_of, path_of
from ._dtypes import CODES
from ._errors import error_of
from ._opening import open_bytes, open_path
from ._reader import Reader


class PySafeSlice:
    """A tensor of an opened file of which parts can be read: ``slice[0, 2:4]``. Made by ``get_slice``."""

    __slots__ = ("_name", "_reader")

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._name = name

    def get_shape(self) -> list[int]:
        """Returns the shape of the whole tensor."""
        return list(self._reader.find(self._name).shape)

    def get_dtype(self) -> str:
        """Returns the dtype as in the file: ``"F32"``."""
        return CODES[self._reader.find(self._name).dtype_name]

    def __getitem__(self, index: Any) -> Any:
        """Returns a part. Indices are integers, slices and an ellipsis; for torch and ``"mmap"``, all that torch has.

        Raises:
            SafetensorError: the index is out of range, or of another kind; for torch and mmap those of torch.
        """
        return self._reader.part(self._name, index)


class safe_open:  # noqa: N801
    """Opens a safetensors file; tensors are read when they are asked for.

    Usable as a context manager, and without.

    Args:
        filename: the path.
        framework: ``"pt"``, ``"np"``, ``"tf"``, ``"jax"``, ``"mlx"``, ``"paddle"``, or their longer names.
        device: the device for the tensors of torch and Paddle.
        backend: with ``"mmap"``, torch tensors are views of a private mapping of the file. With ``"pread"``, they are
            read into memory of their own, as tensors of the other frameworks always are.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: the file cannot be read, or is a folder.
        SafetensorError: the content is not a safetensors file; an argument is not one of those above.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str,
        device: str | int | None = "cpu",
        *,
        backend: str = "mmap",
    ) -> None:
        path_of(filename)
        self._reader: Reader | None = None
        kind, place = opening_of(framework, device, backend)
        self._begin(open_path(filename), kind, place, backend)

    def _begin(self, file: File, framework: str, device: str | int, backend: str) -> None:
        if device != "cpu" and framework not in ("pytorch", "paddle"):
            raise error_of(f"Device {device} is not supported for framework {framework}")
        if framework == "pytorch":
            importlib.import_module("torch")  # its absence is an error here, not at the first tensor
        self._reader = Reader(file, framework, device, own=backend == "pread")

    def _opened(self) -> Reader:
        if self._reader is None:
            error = error_of("File is closed")
            error.code = "invalid_argument"
            raise error
        return self._reader

    def keys(self) -> list[str]:
        """Returns the names of the tensors, sorted."""
        return sorted(self._opened().names())

    def offset_keys(self) -> list[str]:
        """Returns the names of the tensors in the order of the file."""
        return self._opened().names()

    def metadata(self) -> dict[str, str] | None:
        """Returns the strings in the header; None if there are none."""
        return self._opened().metadata()

    def get_tensor(self, name: str) -> Any:
        """Returns a tensor. Errors: SafetensorError if the file does not have it."""
        return self._opened().tensor(name)

    def get_tensors(self) -> dict[str, Any]:
        """Returns all tensors, in the order of the file."""
        return self._opened().tensors()

    def get_slice(self, name: str) -> PySafeSlice:
        """Returns a tensor of which parts can be read, also after the file is closed."""
        reader = self._opened()
        reader.find(name)
        return PySafeSlice(reader, name)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *ignored: object) -> None:
        # Slices keep the reader: they stay usable, as in safetensors.
        self._reader = None


class _safe_open_handle(safe_open):  # noqa: N801
    """Opens the file of a file object, by its name."""

    def __init__(
        self, f: Any, framework: str, device: str | int | None = "cpu", *, backend: str = "mmap"
    ) -> None:
        _ = f.fileno  # an object without a file is an AttributeError, as in safetensors
        super().__init__(f.name, framework, device, backend=backend)


def deserialize(bytes: Any) -> list[tuple[str, dict[str, Any]]]:  # noqa: A002
    """Returns ``[(name, {"shape": list, "dtype": "F32", "data": bytearray})]`` of a file's bytes, in the file's order.

    Raises:
        SafetensorError: the content is not a safetensors file.
    """
    return [
        (name, {"shape": list(shape), "dtype": dtype, "data": data})
        for name, dtype, shape, data in Reader(open_bytes(bytes), "numpy").raw()
    ]


def load_bytes(data: Any, framework: str, device: str | int = "cpu") -> dict[str, Any]:
    """Returns the tensors in a file's bytes, with memory of their own."""
    return Reader(open_bytes(data), framework, device).tensors()


def load_path(
    filename: str | os.PathLike[str], framework: str, device: str | int | None = "cpu", *, backend: str = "mmap"
) -> dict[str, Any]:
    """Returns the tensors in a file; see :class:`safe_open`."""
    with safe_open(filename, framework, device, backend=backend) as file:
        return file.get_tensors()
