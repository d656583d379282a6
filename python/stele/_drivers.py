"""The drivers of CUDA and HIP, which are bound when they are first used."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

from . import _stele
from ._errors import Error, KeyNotFoundError, make

# Types of devices of DLPack: kDLCUDA, kDLROCM.
TYPES = {"cuda": 2, "hip": 10}
_lock = threading.Lock()
_libraries: dict[str, str] = {}
_drivers: dict[str, Any] = {}


def use_library(kind: str, library: str | os.PathLike[str] | None) -> None:
    """Lets the next use of devices bind this library of the driver; None: the system's.

    The driver that is bound already is dropped, with the page-locked memory that it keeps for the next call. Tensors
    remain valid.

    Args:
        kind: ``"cuda"`` or ``"hip"``.
    """
    if kind not in TYPES:
        raise ValueError(f"not a kind of device: {kind!r}; expected cuda or hip")
    with _lock:
        _drivers.pop(kind, None)
        _libraries[kind] = "" if library is None else os.fsdecode(library)


def count(kind: str = "cuda") -> int:
    """Returns the number of devices of a kind, ``"cuda"`` or ``"hip"``; 0 if the driver does not open."""
    try:
        number: int = driver(kind).count
    except Error:
        return 0
    return number


def driver(kind: str) -> Any:
    """Returns the driver, opened once in a process.

    Raises:
        NotFoundError: there is no library of the driver, or no device.
    """
    with _lock:
        found = _drivers.get(kind)
        if found is None:
            library = _libraries.get(kind, "")
            try:
                found = _drivers[kind] = _stele.Devices(kind, library)
            except KeyNotFoundError as error:  # the library's error names no file
                raise make("not_found", f"no driver of {kind}: {error.found or error.message}", file=library) from None
        return found


class Memory(NamedTuple):
    """The elements of a tensor in the memory of a device, contiguous. `owner` keeps them."""

    driver: Any
    ordinal: int
    address: int
    dtype: str
    shape: tuple[int, ...]
    owner: Any
