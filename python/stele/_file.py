"""Opened files: a mapping of names to lazy tensors."""

from __future__ import annotations

import functools
import html
import math
import operator
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _dtypes, _stele, devices
from ._errors import Error, KeyNotFoundError, make

if TYPE_CHECKING:
    import torch

# Makes the library's list of formats: a process that forks while a thread makes it could never use it.
_stele.formats()

Progress = Callable[[int, int], "bool | None"]
# Reads of more bytes run on a second thread, so that Ctrl+C can end them.
_LONG_READ_BYTES = 16 << 20


class Stoppable:
    """A progress function that can cancel its call."""

    def __init__(self, function: Progress | None) -> None:
        self._function = function
        self._stopped = False

    def __call__(self, done: int, total: int) -> bool | None:
        if self._stopped:
            return False
        return None if self._function is None else self._function(done, total)

    def stop(self) -> None:
        self._stopped = True


def interruptible(work: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """Returns work(). If a signal handler raises on the main thread meanwhile, as that of Ctrl+C does, calls stop(),
    waits for work() to end, and raises that exception; a second one is raised at once. Python runs signal handlers on
    the main thread alone, and not while it is in C++."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[Any] = []
    errors: list[BaseException] = []
    go, ended = threading.Event(), threading.Event()
    started = cancelled = False

    def run() -> None:
        go.wait()
        try:
            if not cancelled:
                results.append(work())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="stele", daemon=True)
    interrupt: BaseException | None = None
    while not ended.is_set():
        try:
            if not started:
                thread.start()
                started = True
            go.set()
            while not ended.wait(0.1):  # the signal may reach another thread; Thread.join() would not go on after one
                pass
        except BaseException as error:  # noqa: BLE001
            if not started:  # unknown
                cancelled = True
                go.set()
                raise
            if interrupt is not None and not ended.is_set():
                raise  # work() does not end: it may wait for a pipe
            interrupt = error
            stop()
    try:
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]
        return results[0]
    finally:
        interrupt = None
        errors.clear()  # their tracebacks refer to the list


class Tensor:
    """A tensor of an opened file. Its elements are read when they are asked for.

    Attributes:
        name: the name in the file.
        dtype: the library's name of the dtype: ``"f32"``, ``"bf16"``, ``"i4"``, ``"q4_K"``, ...
        shape: the extents, outermost first.
        nbytes: the number of bytes in the file, uncompressed.
    """

    __slots__ = ("_file", "_leaf", "dtype", "name", "nbytes", "shape")

    def __init__(self, file: File, name: str, leaf: int) -> None:
        self._file = file
        self._leaf = leaf
        self.name = name
        self.dtype: str
        self.shape: tuple[int, ...]
        self.nbytes: int
        self.dtype, self.shape, self.nbytes = file._model.info(leaf)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def annotations(self) -> dict[str, Any]:
        """What the file says of this tensor besides dtype and shape: the quantization, for example."""
        annotations: dict[str, Any] = self._file._model.annotations(self._leaf)
        return annotations

    @property
    def composite(self) -> dict[str, Any] | None:
        """The scheme, bits, group, bytes and parts of a weight that the file stores as several tensors, as quantized
        checkpoints do; its elements are then f32. None for other tensors."""
        composite: dict[str, Any] | None = self._file._model.composite(self._leaf)
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
        return self._file._arrays([self], copy=copy, writable=writable)[0]

    def torch(self, *, copy: bool = False) -> torch.Tensor:
        """Returns the elements as a torch tensor on the CPU: a view of a private mapping of the file, or read."""
        from . import torch as bridge

        return bridge.tensor_of(self.numpy(copy=copy, writable=True), self.dtype, self.name)

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
            self._file._read_to_devices([(self, devices.memory_of(out, self.name, writable=True))], progress)
            return
        array = _array_to_fill(out)
        raw = array.ndim == 1 and array.dtype == np.uint8 and array.nbytes == self.nbytes and array.flags.c_contiguous
        if array.shape != self.shape and not raw:
            raise ValueError(f"read_into: {self.name} has the shape {self.shape}, the array {array.shape}")
        if raw and self.dtype in _dtypes.NUMPY and array is out and array.shape == self.shape:
            raw = False  # numbers, not bytes
        same = raw or (array.dtype.name == _numpy_name(self.dtype) and array.dtype.isnative)
        if same and array.flags.c_contiguous:
            reader, memory, stoppable = self._file._reader, array.reshape(-1).view(np.uint8), Stoppable(progress)
            if self.nbytes <= _LONG_READ_BYTES:
                reader.read_into(self._leaf, memory, progress)
            else:
                interruptible(lambda: reader.read_into(self._leaf, memory, stoppable), stoppable.stop)
            return
        np.copyto(array, self.numpy(), casting="same_kind")

    def stats(self) -> dict[str, Any] | None:
        """Returns count, min, max, mean, std, norm, zeros, nan and inf; None for a dtype without numbers."""
        stats: dict[str, Any] | None = self._file._model.stats(self._leaf)
        return stats

    def __getitem__(self, index: Any) -> Any:
        """Reads a part: integers, slices (with any step) and an ellipsis, as in NumPy. Only the box around it is read.

        With other indices of NumPy, and for packed elements, the whole tensor is read. A part is not checked against a
        checksum, which covers the whole tensor.

        Errors: IndexError; TypeError for blocks, strings, and without ml_dtypes for packed elements.
        """
        if self.dtype not in _WHOLE:
            array = self.numpy()
            if array.shape != self.shape:
                raise TypeError(f"{self.name}: NumPy cannot index elements of {self.dtype}; numpy() returns the bytes")
            return array[index]
        if self._file._reader.viewable(self._leaf, True) or not _is_basic(index):
            return self._file._arrays([self], trust=True)[0][index]
        start, length, after = _box(index, self.shape)
        part = self._file._reader.region(self._leaf, start, length)
        return _dtypes.view_as(part, self.dtype, part.shape)[after]

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
        if self.dtype in _dtypes.NUMPY:
            return self.numpy(writable=True).__dlpack__(**options)
        return self.torch().__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __buffer__(self, flags: int) -> memoryview:
        if self.dtype not in _dtypes.NUMPY:  # NumPy would take bytes for numbers
            raise BufferError(f"{self.name}: a buffer cannot have elements of {self.dtype}; use numpy()")
        view: memoryview = self.numpy().data
        return view

    def __repr__(self) -> str:
        return f"<stele.Tensor {self.name!r}: {self.dtype} {list(self.shape)}>"


# Dtypes whose elements are whole bytes.
_WHOLE = frozenset(_dtypes.NUMPY) | frozenset(_dtypes.ML_DTYPES)


def _numpy_name(dtype: str) -> str:
    return _dtypes.NUMPY.get(dtype) or _dtypes.ML_DTYPES.get(dtype, "")


def _array_to_fill(out: Any) -> np.ndarray[Any, Any]:
    """Returns a writable array of the memory of `out`."""
    if _dtypes.is_torch(out):
        from . import torch as bridge

        return bridge.array_of(out)
    array = out if isinstance(out, np.ndarray) else np.asarray(memoryview(out))
    if not array.flags.writeable:
        raise ValueError("read_into: the memory is read-only")
    return array


def _check_memory(tensor: Tensor, memory: devices.Memory) -> None:
    if memory.dtype == "u8" and memory.shape == (tensor.nbytes,):
        return  # bytes
    if memory.shape != tensor.shape:
        raise ValueError(f"read_into: {tensor.name} has the shape {tensor.shape}, the memory {memory.shape}")
    if memory.dtype != tensor.dtype:
        raise TypeError(f"read_into: {tensor.name} has the dtype {tensor.dtype}, the memory of the device {memory.dtype}")


def _is_basic(index: Any) -> bool:
    """Returns True for integers, slices and ellipses, and tuples of them."""
    return all(
        part is Ellipsis or isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool)
        for part in (index if isinstance(index, tuple) else (index,))
    )


def _box(index: Any, shape: tuple[int, ...]) -> tuple[list[int], list[int], tuple[Any, ...]]:
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


class Checkpoint(Mapping[str, Any]):
    """The parts of a training checkpoint beside the parameters.

    Attributes:
        optimizer: ``{kind: File}``, such as ``"exp_avg"``, with the names of the parameters.
        training: the training configuration, as DL4J's JSON; None if there is none.
        has_graph: True if the file has a computation graph.
        tags: the tags of an archive.
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self.optimizer: dict[str, File] = {kind: File(model) for kind, model in parts["optimizer"].items()}
        self.training: dict[str, Any] | None = parts["training"]
        self.has_graph: bool = parts["graph"]
        self.tags: list[str] = parts["tags"]
        self.left_out = parts["left_out"]
        self._parts = {"optimizer": self.optimizer, "training": self.training, "tags": self.tags}

    def __getitem__(self, name: str) -> Any:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class File(Mapping[str, Tensor]):
    """An opened file: a mapping of names to lazy tensors. Made by :func:`stele.open` and :mod:`stele.transforms`.

    Usable from several threads, and after a fork. A file that was opened by its path can be pickled: unpickling opens
    the path again, and fails if the file has changed.

    Attributes:
        format: the name of the format: ``"safetensors"``, ``"pytorch"``, ...
        metadata: the file's strings.
        properties: the typed properties of GGUF files, or None.
    """

    def __init__(
        self, model: Any, path: str | None = None, options: dict[str, Any] | None = None, keep: Any = None
    ) -> None:
        self._state: Any = model
        self._reader_: Any = None
        self._leaves: dict[str, int] | None = None
        self._tensors: dict[str, Tensor] = {}
        self._options = options or {}
        self._keep = keep
        self.path = path
        self._absolute = path if path is None or _URL.match(path) else os.path.abspath(path)
        self._identity = _identity(path, model) if path is not None else None

    @property
    def _model(self) -> Any:
        if self._state is None:
            raise ValueError("the file is closed")
        return self._state

    @property
    def _reader(self) -> Any:
        if self._reader_ is None:
            self._reader_ = _stele.Reader(self._model)
        return self._reader_

    def _index(self) -> dict[str, int]:
        if self._leaves is None:
            self._leaves = self._model.leaves()
        return self._leaves

    def _arrays(
        self,
        tensors: list[Tensor],
        *,
        copy: bool = False,
        writable: bool = False,
        trust: bool = False,
        progress: Progress | None = None,
    ) -> list[np.ndarray[Any, Any]]:
        size = sum(t.nbytes for t in tensors)
        raw = self._raw([t._leaf for t in tensors], size, copy, writable, trust, progress)
        return [_dtypes.view_as(array, t.dtype, t.shape) for array, t in zip(raw, tensors)]

    def _raw(
        self, leaves: list[int], size: int, copy: bool, writable: bool, trust: bool, progress: Progress | None
    ) -> list[np.ndarray[Any, Any]]:
        """Returns arrays of leaves of `size` bytes together, before view_as()."""
        reader = self._reader
        views = not copy and len(leaves) <= 64 and all(reader.viewable(leaf, trust) for leaf in leaves)
        if views or size <= _LONG_READ_BYTES:
            arrays: list[np.ndarray[Any, Any]] = reader.arrays(leaves, copy, writable, trust, progress)
            return arrays
        stoppable = Stoppable(progress)
        arrays = interruptible(lambda: reader.arrays(leaves, copy, writable, trust, stoppable), stoppable.stop)
        return arrays

    # --- the mapping ---

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            leaf = self._index().get(name)
            if leaf is None:
                raise self._missing(name)
            tensor = self._tensors[name] = Tensor(self, name, leaf)
        elif self._state is None:
            raise ValueError("the file is closed")
        return tensor

    def _missing(self, name: object) -> Error:
        import difflib

        similar = difflib.get_close_matches(str(name), list(self._index())[:2000], 1)
        hint = f"did you mean {similar[0]}?" if similar else ""
        error = make("not_found", "the file has no tensor of this name", str(name), self.path or "", hint=hint)
        assert isinstance(error, KeyNotFoundError)
        return error

    def __iter__(self) -> Iterator[str]:
        return iter(self._index())

    def __len__(self) -> int:
        return len(self._index())

    def __contains__(self, name: object) -> bool:
        return name in self._index()

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the tensor of a name, or `default`."""
        return self[name] if name in self else default

    # --- what a file has besides tensors ---

    @property
    def format(self) -> str:
        name: str = self._model.format
        return name

    @property
    def metadata(self) -> dict[str, str]:
        metadata: dict[str, str] = self._model.metadata
        return metadata

    @property
    def properties(self) -> Any:
        return self._model.properties

    @property
    def notes(self) -> list[str]:
        """Sentences about parts of the file that were not understood, and stay as they are."""
        notes: list[str] = self._model.notes
        return notes

    @property
    def values(self) -> _Values:
        """What is in the file and is no tensor, by path: numbers, strings, lists. Also callable, like a mapping's
        ``values()``, for the tensors."""
        return _Values(self)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all tensors."""
        number: int = self._model.nbytes
        return number

    @property
    def tree(self) -> dict[str, Any]:
        """The tensors and values as nested dicts and lists: a dot in a name begins a level, and a level with only the
        numbers from 0 on is a list."""
        root: dict[str, Any] = {}
        made: list[tuple[dict[str, Any], str]] = []
        entries: list[tuple[str, Any]] = [*self.items(), *self._model.values().items()]
        for name, entry in entries:
            *levels, last = _split(name)
            at = root
            for level in levels:
                while level in at and not isinstance(at[level], _Level):
                    level += "."  # a tensor has the name
                if level not in at:
                    at[level] = _Level()
                    made.append((at, level))
                at = at[level]
            while last in at:
                last += "."
            at[last] = entry
        for above, key in reversed(made):
            level_dict = above[key]
            numbers = [str(i) for i in range(len(level_dict))]
            is_list = level_dict.keys() == set(numbers)
            above[key] = [level_dict[number] for number in numbers] if is_list else dict(level_dict)
        return root

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Optimizer state, training configuration and tags, if the file's format has them; else None."""
        if self._absolute is None:
            return None
        parts = self._model.checkpoint(self._absolute, self._options)
        return None if parts is None else Checkpoint(parts)

    # --- many at once ---

    def numpy(
        self, *, copy: bool = False, writable: bool = False, progress: Progress | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Returns all tensors as NumPy arrays; see :meth:`Tensor.numpy`. Several threads read them."""
        index = self._index()
        raw = self._raw(list(index.values()), self.nbytes, copy, writable, False, progress)
        arrays = dict(zip(index, raw))
        if self._model.has_other_dtypes():
            for name, leaf in index.items():
                dtype, shape, _ = self._model.info(leaf)
                arrays[name] = _dtypes.view_as(arrays[name], dtype, shape)
        else:
            for name, array in arrays.items():
                if array.dtype.char in _dtypes.LONG_LONG:
                    arrays[name] = array.view(_dtypes.LONG_LONG[array.dtype.char])
        return arrays

    def torch(self, *, copy: bool = False, progress: Progress | None = None) -> dict[str, torch.Tensor]:
        """Returns all tensors as torch tensors on the CPU."""
        from . import torch as bridge

        tensors = list(self.items())
        arrays = self._arrays([t for _, t in tensors], copy=copy, writable=True, progress=progress)
        return {name: bridge.tensor_of(array, t.dtype, name) for (name, t), array in zip(tensors, arrays)}

    def to_device(
        self,
        device: Any,
        names: Iterable[str] | None = None,
        *,
        bypass_cache: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, devices.DeviceTensor]:
        """Reads tensors into new memory of a device, without a copy of them in main memory.

        Args:
            device: such as ``"cuda:0"`` or ``"hip:1"``.
            names: the names of the tensors; None: all.
            bypass_cache: reads what is not in the system's cache of files past it (Linux); False: through the cache,
                which makes the next load faster.

        Errors: ``stele.NotFoundError`` if there is no driver or no device; MemoryLimitError; those of the file.
        """
        place = devices.parse(device)
        chosen = list(self) if names is None else list(names)
        if sum(self[name].nbytes for name in chosen) <= _LONG_READ_BYTES:
            return devices.load(self, chosen, place, bypass_cache, progress)
        stoppable = Stoppable(progress)
        tensors: dict[str, devices.DeviceTensor] = interruptible(
            lambda: devices.load(self, chosen, place, bypass_cache, stoppable), stoppable.stop
        )
        return tensors

    def read_into(self, outs: Mapping[str, Any], *, progress: Progress | None = None) -> None:
        """Reads tensors into memory that exists: ``{name: out}``; see :meth:`Tensor.read_into`. Those for devices are
        read in one call, so that small ones share copies, after the others.

        Errors: those of :meth:`Tensor.read_into`; all that is wrong with memory of devices is found before the first
        tensor changes.
        """
        to_devices, others = [], []
        for name, out in outs.items():
            tensor = self[name]
            if devices.is_on_device(out):
                to_devices.append((tensor, devices.memory_of(out, name, writable=True)))
                _check_memory(*to_devices[-1])
            else:
                others.append((tensor, out))
        for tensor, out in others:
            tensor.read_into(out, progress=progress)
        self._read_to_devices(to_devices, progress)

    def _read_to_devices(self, rows: list[tuple[Tensor, devices.Memory]], progress: Progress | None) -> None:
        for tensor, memory in rows:
            _check_memory(tensor, memory)
        model, stoppable = self._model, Stoppable(progress)
        size = sum(tensor.nbytes for tensor, _ in rows)
        by_driver: dict[int, list[tuple[int, devices.Memory]]] = {}
        for tensor, memory in rows:
            by_driver.setdefault(id(memory.driver), []).append((tensor._leaf, memory))
        for group in by_driver.values():
            if size <= _LONG_READ_BYTES:
                devices.read_into(model, group, progress)
                continue
            interruptible(functools.partial(devices.read_into, model, group, stoppable), stoppable.stop)

    def _as_path(self, function: str) -> str:
        """Returns the path for a function that opens it again.

        Raises:
            TypeError: the file has none. ValueError: its path alone is not this file. Error: the file has changed.
        """
        self._model  # raises if closed
        if self._absolute is None:
            raise TypeError(f"{function}: the file is not at a path; save it first")
        if self._options:
            options = ", ".join(sorted(self._options))
            raise ValueError(f"{function}: the file was opened with options ({options}); pass its path and the options")
        now = _identity(self._absolute) or []
        if self._identity is not None and now != self._identity[: max(1, len(now))]:
            raise make("io", "the file has changed since it was opened", file=self.path or "")
        return self._absolute

    # --- life ---

    def close(self) -> None:
        """Closes the file. Arrays that were made from it stay valid."""
        self._state = self._reader_ = self._leaves = self._keep = None
        self._tensors = {}

    def __enter__(self) -> File:
        self._model  # raises if closed
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._model  # raises if closed
        if self._absolute is None:
            raise TypeError("only a file that was opened by its path can be pickled")
        return (_reopen, (self._absolute, self._options, self._identity))

    def __repr__(self) -> str:
        if self._state is None:
            return "<stele.File: closed>"
        place = f" {self.path!r}" if self.path else ""
        return f"<stele.File{place}: {self.format or 'in memory'}, {len(self)} tensors, {self.nbytes:,} bytes>"

    def _repr_html_(self) -> str:
        if self._state is None:
            return html.escape(repr(self))
        rows = []
        for number, (name, tensor) in enumerate(self.items()):
            if number == 50:
                rows.append(f"<tr><td colspan=4>and {len(self) - number} more</td></tr>")
                break
            shape = " × ".join(map(str, tensor.shape)) or "1"
            cells = (html.escape(name), html.escape(tensor.dtype), shape, f"{tensor.nbytes:,}")
            rows.append("<tr><td style='text-align:left'>" + "</td><td>".join(cells) + "</td></tr>")
        return (
            f"<p><b>{html.escape(os.path.basename(self.path or '') or 'in memory')}</b> {html.escape(self.format)}, "
            f"{len(self)} tensors, {self.nbytes:,} bytes</p>"
            "<table><tr><th>name<th>dtype<th>shape<th>bytes</tr>" + "".join(rows) + "</table>"
        )


class _Values(Mapping[str, Any]):
    """A file's plain values by path; a call returns the tensors, as a mapping's method does."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._values: dict[str, Any] = file._model.values()

    def __call__(self) -> ValuesView[Tensor]:
        return ValuesView(self._file)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def _split(name: str) -> list[str]:
    r"""Splits a path at its dots; `\.` is a dot in a name, `\\` a backslash, `\e` an empty segment."""
    if "\\" not in name:
        return name.split(".")
    parts, part, escaped = [], "", False
    for letter in name:
        if escaped:
            part += {"e": ""}.get(letter, letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == ".":
            parts.append(part)
            part = ""
        else:
            part += letter
    return [*parts, part]


class _Level(dict[str, Any]):
    """A level of names in a tree; a value may be a dict, too."""


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FLAGS = {
    "append", "compress", "parts", "raw", "allow_loss", "allow_overflow", "overwrite", "dry_run", "ignore_checksums",
}
_PATHS = {"names", "parameters"}
_NUMBERS = {"threads"}
_SIZES = {"limit", "shard"}


def file_name(path: str) -> str:
    """Returns a path for _stele, for which "-" is the standard input or output."""
    return os.path.join(".", path) if path == "-" else path


def checked(function: str, **options: Any) -> dict[str, Any]:
    """Returns the options of a function that are not None, in the types that _stele expects.

    Raises:
        TypeError, ValueError: an option has another type, or is negative.
    """
    result: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name in _FLAGS:
            result[name] = bool(value)
        elif name in _PATHS:
            result[name] = os.fsdecode(value)
        elif name == "buffers":
            patterns = [value] if isinstance(value, str) else list(value)
            if not all(isinstance(pattern, str) for pattern in patterns):
                raise TypeError(f"{function}: buffers are not strings")
            result[name] = patterns
        elif isinstance(value, str) and name not in _NUMBERS:
            result[name] = value
        elif name == "quantize" and hasattr(value, "__index__"):
            result[name] = str(operator.index(value))
        elif (name in _NUMBERS or name in _SIZES) and hasattr(value, "__index__"):
            number = operator.index(value)
            if number < 0 or name in _NUMBERS and number >= 2**32:
                raise ValueError(f"{function}: {name} is out of range: {number}")
            result[name] = str(number) if name in _SIZES else number
        else:
            kind = "an int" if name in _NUMBERS else "a str"
            raise TypeError(f"{function}: {name} is not {kind}, but {type(value).__name__}")
    return result


def _identity(path: str, model: Any = None) -> list[tuple[str, int, int]] | None:
    """Returns names, sizes and times of a file, of the others that store its tensors, or of all files in a folder."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            identity = []
            files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        else:
            identity = [(".", status.st_size, status.st_mtime_ns)]
            files = [file for file in model.files() if file != path] if model is not None else []
            files = files and [file for file in files if os.path.exists(file) and not os.path.samefile(file, path)]
        for file in sorted(files) if files else ():
            status = os.stat(file)
            identity.append((os.path.relpath(file, path), status.st_size, status.st_mtime_ns))
    except OSError:
        return None
    return identity


def _reopen(path: str, options: dict[str, Any], identity: list[tuple[str, int, int]] | None) -> File:
    cause: Error | None = None
    try:
        file = open(path, **options)
        if file._identity == identity:
            return file
    except Error as error:
        cause = error
    raise make("io", "the file has changed since it was pickled", file=path) from cause


def open(  # noqa: A001
    source: Any,
    *,
    names: str | os.PathLike[str] | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    parts: bool = False,
    raw: bool = False,
    optimizer: str | None = None,
    parameters: str | os.PathLike[str] | None = None,
    buffers: str | Sequence[str] | None = None,
) -> File:
    """Opens a model file of any format. Tensors are read when they are asked for.

    Args:
        source: a path; or bytes, or any buffer; or a file object that can seek. A folder that is a model (a checkpoint
            of TensorFlow, a set of shards) is one path.
        names: the names for a file without names: a layout (.txt), a Paddle program, or a model.
        tag: the tag of an archive to open; by default the newest.
        part: opens only the part below this path, such as ``"model_state_dict"``.
        limit: allows tensors of up to this size together, for example ``"5G"`` or a number of bytes, if they share
            elements.
        ignore_checksums: does not compare the checksums of a PyTorch file.
        parts: shows the codes, scales and zero points of quantized weights, as the file stores them.
        raw: takes codes and scales of quantized weights that are not decoded (see ``notes``) for numbers; otherwise a
            save at another precision, or to a format that does not keep such parts, is an error.
        optimizer, parameters, buffers: of PyTorch checkpoints, for ``checkpoint``: the path of the optimizer; the names
            in the order of ``parameters()``, as a file; patterns of the tensors that are no parameters.

    Raises:
        NotFoundError: the file does not exist (also a FileNotFoundError).
        FormatError: the content is not a model, or damaged (also a ValueError).
        OperatingSystemError: the file cannot be read (also an OSError).
    """
    options = checked(
        "open",
        names=names,
        tag=tag,
        part=part,
        limit=limit,
        ignore_checksums=ignore_checksums,
        parts=parts,
        raw=raw,
        optimizer=optimizer,
        parameters=parameters,
        buffers=buffers,
    )
    options = {name: value for name, value in options.items() if value}
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        return File(_stele.open(file_name(path), options), path, options)
    try:
        view = memoryview(source)
    except (TypeError, ValueError, BufferError):
        if hasattr(source, "read") and hasattr(source, "seek"):
            return File(_stele.open(source, options), None, options, keep=source)
        raise TypeError(f"open: not a path, a buffer or a file object: {type(source).__name__}") from None
    if not view.c_contiguous:
        raise ValueError("open: the buffer is not contiguous")
    view = view.cast("B")
    return File(_stele.open(view, options), None, options, keep=view)
