"""Memory of GPUs, by the drivers of CUDA and HIP, which are bound when they are first used.

    >>> tensors = stele.open("model.safetensors").to_device("cuda:0")
    >>> weight = torch.from_dlpack(tensors["fc.weight"])  # the same memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _dtypes, _stele
from ._drivers import TYPES, Memory, count, driver, use_library

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceTensor", "count", "use_library"]

_KINDS = {number: kind for kind, number in TYPES.items()}
# The default stream in DLPack's protocol.
_DEFAULT_STREAMS = {"cuda": 1, "hip": 0}
# Codes and bits of DLPack's dtypes.
_CODES = {
    "f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16),
    "i64": (0, 64), "i32": (0, 32), "i16": (0, 16), "i8": (0, 8),
    "u64": (1, 64), "u32": (1, 32), "u16": (1, 16), "u8": (1, 8),
    "bool": (6, 8), "c64": (5, 64), "c128": (5, 128),
    "f8_e4m3fn": (10, 8), "f8_e4m3fnuz": (11, 8), "f8_e5m2": (12, 8), "f8_e5m2fnuz": (13, 8), "f8_e8m0": (14, 8),
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}


def parse(device: Any) -> tuple[str, int]:
    """Returns kind and number of a device such as ``"cuda:0"``."""
    kind, _, number = str(device).partition(":")
    if kind not in TYPES or not (number == "" or number.isascii() and number.isdigit()):
        raise ValueError(f"not a device: {str(device)!r}; expected such as 'cuda:0' or 'hip:1'")
    return kind, int(number or 0)


def is_on_device(entry: Any) -> bool:
    """Returns True for an object whose memory is on a device of CUDA or HIP."""
    if isinstance(entry, DeviceTensor):
        return True
    if isinstance(entry, np.ndarray):
        return False
    if _dtypes.is_torch(entry):
        return bool(entry.device.type == "cuda")
    where = getattr(entry, "__dlpack_device__", None)
    return where is not None and hasattr(entry, "__dlpack__") and int(where()[0]) in _KINDS


def reaches(entry: Any) -> bool:
    """Returns True if the driver for an object with DLPack opens."""
    return count(_KINDS[int(entry.__dlpack_device__()[0])]) > 0


def memory_of(entry: Any, name: str, *, writable: bool = False) -> Memory:
    """Returns the memory of an object for which is_on_device() is True, after the work that was given to its stream.

    Raises:
        NotFoundError: the driver does not open.
        TypeError: the library has no such dtype. ValueError: the elements are not contiguous, or read-only.
    """
    if isinstance(entry, DeviceTensor):
        entry._driver.synchronize(entry._ordinal)
        return Memory(entry._driver, entry._ordinal, entry.address, entry.dtype_name, entry.shape, entry)
    if _dtypes.is_torch(entry):
        from . import _torch_tensors

        return _torch_tensors.memory_of(entry, name)
    number, ordinal = entry.__dlpack_device__()
    kind = _KINDS[int(number)]
    opened = driver(kind)
    stream = _DEFAULT_STREAMS[kind]
    try:
        capsule = entry.__dlpack__(stream=stream, max_version=(1, 1))
    except TypeError:  # before version 1
        capsule = entry.__dlpack__(stream=stream)
    owner, address, shape, code, bits, lanes, _, _, contiguous = _stele.from_dlpack(capsule, writable)
    dtype = _NAMES.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        raise TypeError(f"{name}: no format has the dtype of DLPack with the code {code} and {bits} bits")
    if not contiguous:
        raise ValueError(f"{name}: the elements are not contiguous in the memory of the device")
    opened.synchronize(ordinal)  # the default stream, which waits for the producer's
    return Memory(opened, int(ordinal), address, dtype, shape, owner)


class DeviceTensor(_dtypes.Described):
    """A tensor in the memory of a device, which is freed with the last object that refers to it.

    ``torch.from_dlpack``, ``cupy.from_dlpack`` and others take it without a copy. Packed elements (``i4``), blocks
    (``q4_K``) and strings are one-dimensional bytes there, as the file stores them.

    Attributes:
        dtype_name: the library's name of the dtype.
        shape: the extents, outermost first.
        nbytes: the number of bytes.
        device: ``"cuda:0"``, ``"hip:1"``.
        address: the address of the first element, for kernels.
    """

    __slots__ = ("_driver", "_kind", "_ordinal", "_owner", "address", "device")

    def __init__(
        self, opened: Any, kind: str, ordinal: int, owner: Any, address: int, dtype_name: str, shape: tuple[int, ...],
        nbytes: int,
    ) -> None:
        super().__init__(dtype_name, shape, nbytes)
        self._owner = owner
        self._kind = kind
        self._ordinal = ordinal
        self._driver = opened
        self.address = address
        self.device = f"{kind}:{ordinal}"

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns a copy of the elements in main memory, after the work that was given to the default stream."""
        raw = self._driver.bytes(self.address, self.nbytes, self._ordinal)
        if self.dtype_name in _dtypes.NUMPY:
            array: np.ndarray[Any, Any] = raw.view(_dtypes.NUMPY[self.dtype_name]).reshape(self.shape)
            return array
        if self.dtype_name in _dtypes.ML_DTYPES:
            raw = raw.view(np.uint16 if self.dtype_name == "bf16" else np.uint8).reshape(self.shape)
        return _dtypes.view_as(raw, self.dtype_name, self.shape)

    def torch(self) -> torch.Tensor:
        """Returns a torch tensor with the same memory."""
        from . import _torch_tensors

        return _torch_tensors.tensor_on_device(self._bytes(), self.dtype_name, self.shape)

    def _array(self, dtype: str, shape: tuple[int, ...]) -> Any:
        code, bits = _CODES[dtype]
        return _stele.to_dlpack(self._owner, self.address, list(shape), code, bits, TYPES[self._kind], self._ordinal)

    def _bytes(self) -> DeviceTensor:
        """Returns the bytes as a tensor with the same memory."""
        return DeviceTensor(
            self._driver, self._kind, self._ordinal, self._owner, self.address, "u8", (self.nbytes,), self.nbytes
        )

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        # All copies to the memory had ended before there was an object; later work of the program is on the default
        # stream, and another stream may not wait for that.
        if stream not in (None, -1, _DEFAULT_STREAMS[self._kind]):
            self._driver.synchronize(self._ordinal)
        array = self._array(self.dtype_name, self.shape) if self.dtype_name in _CODES else self._array("u8", (self.nbytes,))
        return array.__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (TYPES[self._kind], self._ordinal)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        whole = self.dtype_name in _CODES
        if self._kind != "cuda" or whole and self.dtype_name not in _dtypes.NUMPY:
            raise AttributeError(f"__cuda_array_interface__ cannot describe {self.dtype_name} on {self.device}; DLPack can")
        return {
            "version": 3,
            "shape": self.shape if whole else (self.nbytes,),
            "typestr": np.dtype(_dtypes.NUMPY[self.dtype_name] if whole else "uint8").str,
            "data": (self.address if self.nbytes else 0, False),
            "strides": None,
            "stream": 1,  # the default stream, to which the program may have given work
        }

    def __repr__(self) -> str:
        return f"<stele.devices.DeviceTensor on {self.device}: {self.dtype_name} {list(self.shape)}>"


def load(
    file: Any, names: list[str], device: tuple[str, int], bypass_cache: bool, progress: Any
) -> dict[str, DeviceTensor]:
    """Reads tensors of a file into new memory of a device. Names of the same tensor get the same memory."""
    kind, ordinal = device
    opened = driver(kind)
    tensors = [file[name] for name in names]
    leaves = list(dict.fromkeys(tensor._leaf for tensor in tensors))
    memory = dict(zip(leaves, opened.load(file._model, leaves, ordinal, bypass_cache, progress)))
    result: dict[str, DeviceTensor] = {}
    made: dict[int, DeviceTensor] = {}
    for name, tensor in zip(names, tensors):
        if tensor._leaf not in made:
            owner, address = memory[tensor._leaf]
            made[tensor._leaf] = DeviceTensor(
                opened, kind, ordinal, owner, address, tensor.dtype_name, tensor.shape, tensor.nbytes
            )
        result[name] = made[tensor._leaf]
    return result


def read_into(model: Any, rows: list[tuple[int, Memory]], progress: Any) -> None:
    """Reads leaves of a model into memory of devices of one driver."""
    places = [memory for _, memory in rows]
    places[0].driver.read_into(
        model,
        [leaf for leaf, _ in rows],
        [memory.address for memory in places],
        [memory.ordinal for memory in places],
        progress,
    )
