"""Lazy tensors of opened files, and their reads."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _dtypes, _stele, devices
from ._drivers import Memory
from ._errors import spelled
from ._interrupt import Progress, interruptible_read

if TYPE_CHECKING:
    import torch


class Opened:
    """The model of an opened file, and the reads of its tensors. A File and its Tensors share it: as references between
    themselves, they would keep the file open until the garbage collector runs.

    Attributes:
        keep: what must live as long as the model.
        place: the absolute path, the options and the identity of a file that was opened by its path, or None.
    """

    def __init__(self, model: Any, keep: Any = None) -> None:
        self._model: Any = model
        self._reader: Any = None
        self.keep = keep
        self.place: tuple[str, dict[str, Any], Any] | None = None

    @property
    def closed(self) -> bool:
        return self._model is None

    @property
    def model(self) -> Any:
        if self._model is None:
            raise ValueError("the file is closed")
        return self._model

    @property
    def reader(self) -> Any:
        if self._reader is None:
            self._reader = _stele.Reader(self.model)
        return self._reader

    def close(self) -> None:
        self._model = self._reader = self.keep = None

    def __reduce__(self) -> tuple[Any, ...]:
        from ._file import _reopen

        self.model  # raises if closed
        if self.place is None:
            raise TypeError("only a file that was opened by its path can be pickled")
        return (_reopen, self.place)

    def arrays(
        self,
        tensors: list[Tensor],
        *,
        copy: bool = False,
        writable: bool = False,
        trust: bool = False,
        progress: Progress | None = None,
    ) -> list[np.ndarray[Any, Any]]:
        size = sum(t.nbytes for t in tensors)
        raw = self.raw([t._leaf for t in tensors], size, copy, writable, trust, progress)
        return [_dtypes.view_as(array, t.dtype_name, t.shape) for array, t in zip(raw, tensors)]

    def raw(
        self, leaves: list[int], size: int, copy: bool, writable: bool, trust: bool, progress: Progress | None
    ) -> list[np.ndarray[Any, Any]]:
        """Returns arrays of leaves of `size` bytes together, before view_as()."""
        reader = self.reader
        views = not copy and len(leaves) <= 64 and all(reader.viewable(leaf, trust) for leaf in leaves)
        arrays: list[np.ndarray[Any, Any]] = interruptible_read(
            0 if views else size, lambda told: reader.arrays(leaves, copy, writable, trust, told), progress
        )
        return arrays

    def read_to_devices(self, rows: list[tuple[Tensor, Memory]], progress: Progress | None) -> None:
        for tensor, memory in rows:
            check_memory(tensor, memory)
        size = sum(tensor.nbytes for tensor, _ in rows)
        by_driver: dict[int, list[tuple[int, Memory]]] = {}
        for tensor, memory in rows:
            by_driver.setdefault(id(memory.driver), []).append((tensor._leaf, memory))
        for group in by_driver.values():
            interruptible_read(size, functools.partial(devices.read_into, self.model, group), progress)


class Tensor(_dtypes.Described):
    """A tensor of an opened file. Its elements are read when they are asked for.

    Attributes:
        name: the name in the file.
        dtype_name: the library's name of the dtype: ``"f32"``, ``"bf16"``, ``"i4"``, ``"q4_K"``, ...
        shape: the extents, outermost first.
        nbytes: the number of bytes in the file, uncompressed.
    """

    __slots__ = ("_leaf", "_opened", "name")

    def __init__(self, opened: Opened, name: str, leaf: int) -> None:
        self._opened = opened
        self._leaf = leaf
        self.name = name
        super().__init__(*opened.model.info(leaf))

    @property
    def annotations(self) -> dict[str, Any]:
        """What the file says of this tensor besides dtype and shape: the quantization, for example."""
        annotations: dict[str, Any] = self._opened.model.annotations(self._leaf)
        if "unreadable" in annotations:
            annotations["unreadable"] = spelled(annotations["unreadable"])
        return annotations

    @property
    def composite(self) -> dict[str, Any] | None:
        """The scheme, bits, group, bytes and parts of a weight that the file stores as several tensors, as quantized
        checkpoints do; its elements are then f32. None for other tensors."""
        composite: dict[str, Any] | None = self._opened.model.composite(self._leaf)
        return composite

    def numpy(self, *, copy: bool = False, writable: bool = False) -> np.ndarray[Any, Any]:
        """Returns the elements as a NumPy array.

        The array is a read-only view of the mapped file where the file stores the elements as they are in memory, and
        aligned; otherwise they are read. ``copy`` always reads. ``writable`` returns an array that can be changed: a
        private mapping, whose changes do not reach the file. Views stay valid when the file is closed, but the file
        must not be shortened meanwhile.

        Elements of dtypes that NumPy lacks have those of ml_dtypes, if it is installed; otherwise they are raw, in a
        structured dtype with one field, the dtype's name. Packed elements (i4, u4, f4, f6) get a byte each. Blocks
        (``q4_K``) and strings are raw bytes: ``stele.transforms.dequantize`` makes numbers of blocks.

        Errors: ``stele.FormatError`` with the code ``checksum`` if the file has a checksum that does not match; I/O.
        """
        return self._opened.arrays([self], copy=copy, writable=writable)[0]

    def torch(self, *, copy: bool = False) -> torch.Tensor:
        """Returns the elements as a torch tensor on the CPU: a view of a private mapping of the file, or read."""
        from . import _torch_tensors

        raw = self._opened.raw([self._leaf], self.nbytes, copy, True, False, None)
        return _torch_tensors.tensor_of_file(raw[0], self)

    def read_into(self, out: Any, *, progress: Progress | None = None) -> None:
        """Reads the elements into an array, a torch tensor or a buffer of this shape, also in the memory of a device.

        No other memory is needed if `out` is contiguous and has this dtype. Another dtype is converted like
        ``numpy.copyto`` does. A buffer of bytes, or a one-dimensional array of uint8, with ``nbytes`` elements receives
        the bytes as the file stores them.

        Memory of a device is that of a CUDA tensor of torch, or of another object with DLPack; it must be contiguous,
        and have this dtype. The elements are verified before the first copy: an error of the file changes nothing.

        Errors: ValueError if `out` has another shape or is read-only; TypeError if its dtype cannot hold the elements.
        """
        if devices.is_on_device(out):
            self._opened.read_to_devices([(self, devices.memory_of(out, self.name, writable=True))], progress)
            return
        array, shape, pairs = _array_to_fill(out)
        if array.size and any(stride == 0 and extent > 1 for stride, extent in zip(array.strides, array.shape)):
            raise ValueError(f"read_into: elements of the memory for {self.name} share addresses")
        raw = not pairs and shape == (self.nbytes,) and array.dtype == np.uint8 and array.flags.c_contiguous
        if shape != self.shape and not raw:
            raise ValueError(f"read_into: {self.name} has the shape {self.shape}, the array {shape}")
        if pairs and self.dtype_name != "f4_e2m1":
            raise TypeError(f"read_into: {self.name} has the dtype {self.dtype_name}, the memory f4_e2m1")
        if raw and self.dtype_name in _dtypes.NUMPY and array is out and array.shape == self.shape:
            raw = False  # numbers, not bytes
        same = raw or pairs or (array.dtype.name == _numpy_name(self.dtype_name) and array.dtype.isnative)
        if same and array.flags.c_contiguous:
            reader, memory = self._opened.reader, array.reshape(-1).view(np.uint8)
            interruptible_read(self.nbytes, functools.partial(reader.read_into, self._leaf, memory), progress)
            return
        np.copyto(array, self.numpy(), casting="same_kind")

    def stats(self) -> dict[str, Any] | None:
        """Returns count, min, max, mean, std, norm, zeros, nan and inf; None for a dtype without numbers."""
        stats: dict[str, Any] | None = self._opened.model.stats(self._leaf)
        return stats

    def __getitem__(self, index: Any) -> Any:
        """Reads a part: integers, slices (with any step) and an ellipsis, as in NumPy. Only the box around it is read.

        With other indices of NumPy, and for packed elements, the whole tensor is read. A part is not checked against a
        checksum, which covers the whole tensor.

        Errors: IndexError; TypeError for blocks, strings, and without ml_dtypes for packed elements.
        """
        if self.dtype_name not in _WHOLE:
            array = self.numpy()
            if array.shape != self.shape:
                raise TypeError(f"{self.name}: NumPy cannot index elements of {self.dtype_name}; numpy() returns the bytes")
            return array[index]
        if self._opened.reader.viewable(self._leaf, True) or not _is_basic(index):
            return self._opened.arrays([self], trust=True)[0][index]
        start, length, after = box(index, self.shape)
        part = self._opened.reader.region(self._leaf, start, length)
        return _dtypes.view_as(part, self.dtype_name, part.shape)[after]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError("another dtype needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        if self.dtype_name in _dtypes.NUMPY:
            return self.numpy(writable=True).__dlpack__(**options)
        return self.torch().__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __buffer__(self, flags: int) -> memoryview:
        if self.dtype_name not in _dtypes.NUMPY:  # NumPy would take bytes for numbers
            raise BufferError(f"{self.name}: a buffer cannot have elements of {self.dtype_name}; use numpy()")
        view: memoryview = self.numpy().data
        return view

    def __repr__(self) -> str:
        return f"<stele.Tensor {self.name!r}: {self.dtype_name} {list(self.shape)}>"


# Dtypes whose elements are whole bytes.
_WHOLE = frozenset(_dtypes.NUMPY) | frozenset(_dtypes.ML_DTYPES)


def _numpy_name(dtype: str) -> str:
    return _dtypes.NUMPY.get(dtype) or _dtypes.ML_DTYPES.get(dtype, "")


def _array_to_fill(out: Any) -> tuple[np.ndarray[Any, Any], tuple[int, ...], bool]:
    """Returns a writable array of the memory of `out`, the shape of its elements, and True if they are pairs of float4,
    of which the array has the bytes."""
    if _dtypes.is_torch(out):
        from . import _torch_tensors

        return _torch_tensors.array_of(out), _torch_tensors.shape_of(out, "read_into"), out.dtype == _torch_tensors.FLOAT4
    array = out if isinstance(out, np.ndarray) else np.asarray(memoryview(out))
    if not array.flags.writeable:
        raise ValueError("read_into: the memory is read-only")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("read_into: a masked array keeps its mask; pass its .data")
    return array, array.shape, False


def check_memory(tensor: Tensor, memory: Memory) -> None:
    if memory.dtype == "u8" and memory.shape == (tensor.nbytes,):
        return  # bytes
    if memory.shape != tensor.shape:
        raise ValueError(f"read_into: {tensor.name} has the shape {tensor.shape}, the memory {memory.shape}")
    if memory.dtype != tensor.dtype_name:
        raise TypeError(f"read_into: {tensor.name} has the dtype {tensor.dtype_name}, the memory of the device {memory.dtype}")


def _is_basic(index: Any) -> bool:
    """Returns True for integers, slices and ellipses, and tuples of them."""
    return all(
        part is Ellipsis or isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool)
        for part in (index if isinstance(index, tuple) else (index,))
    )


def box(index: Any, shape: tuple[int, ...]) -> tuple[list[int], list[int], tuple[Any, ...]]:
    """Returns the box around a basic index: starts, lengths, and the index into it."""
    parts = list(index) if isinstance(index, tuple) else [index]
    ellipses = parts.count(Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can have only one ellipsis")
    if len(parts) - ellipses > len(shape):
        raise IndexError(f"too many indices: {len(parts) - ellipses} for a tensor with {len(shape)} axes")
    at = parts.index(Ellipsis) if ellipses else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(shape) - len(parts) + ellipses)
    start: list[int] = []
    length: list[int] = []
    after: list[Any] = []
    for axis, (part, extent) in enumerate(zip(parts, shape)):
        if isinstance(part, slice):
            indices = range(extent)[part]
            low, high = sorted((indices[0], indices[-1])) if indices else (0, -1)
            start.append(low)
            length.append(high + 1 - low)
            after.append(slice(None, None, indices.step))
            continue
        number = operator.index(part)
        if not -extent <= number < extent:
            raise IndexError(f"index {number} is out of range for axis {axis} with {extent} elements")
        start.append(number % extent)
        length.append(1)
        after.append(0)
    return start, length, (*after, ...) if ellipses else tuple(after)
