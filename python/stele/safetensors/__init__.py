"""A drop-in for safetensors 0.8.0: the same names, over this library's reader and writer.

    >>> from stele.safetensors import safe_open
    >>> from stele.safetensors.torch import load_file, save_file

A file that this module writes has the bytes that safetensors writes for the same tensors. docs/python.md lists the
differences.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import math
import operator
import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _dtypes, _stele
from .._errors import Error, FormatError, MemoryLimitError, NotFoundError, OperatingSystemError
from .._file import File, Tensor, _box
from .._file import open as _open_any
from .._save import save as _save_any

__all__ = [
    "SafetensorError",
    "TensorSpec",
    "__version__",
    "deserialize",
    "safe_open",
    "serialize",
    "serialize_file",
]

# The version of safetensors whose API this module has. stele.__version__ is the library's own.
__version__ = "0.8.0"

_Array = np.ndarray[Any, Any]

# The names in a file's header, by those of the library.
_CODES = {
    "bool": "BOOL",
    "f4_e2m1": "F4",
    "f6_e2m3": "F6_E2M3",
    "f6_e3m2": "F6_E3M2",
    "u8": "U8",
    "i8": "I8",
    "f8_e5m2": "F8_E5M2",
    "f8_e4m3fn": "F8_E4M3",
    "f8_e8m0": "F8_E8M0",
    "f8_e4m3fnuz": "F8_E4M3FNUZ",
    "f8_e5m2fnuz": "F8_E5M2FNUZ",
    "i16": "I16",
    "u16": "U16",
    "f16": "F16",
    "bf16": "BF16",
    "i32": "I32",
    "u32": "U32",
    "f32": "F32",
    "c64": "C64",
    "f64": "F64",
    "i64": "I64",
    "u64": "U64",
}
_BITS = {
    **{name: 8 * np.dtype(_dtypes.NUMPY[name]).itemsize for name in _CODES if name in _dtypes.NUMPY},
    **{name: 16 if name == "bf16" else 8 for name in _dtypes.ML_DTYPES},
    "f4_e2m1": 4,
    "f6_e2m3": 6,
    "f6_e3m2": 6,
}
# Dtypes whose elements are not whole bytes.
_PACKED = frozenset(name for name, bits in _BITS.items() if bits % 8)
# The library's names by those that TensorSpec takes: of NumPy and torch.
_SPEC_DTYPES = {
    **{other: name for name, other in _dtypes.TORCH.items() if name in _CODES},
    "float4_e2m1fn_x2": "f4_e2m1",
}
_FRAMEWORKS = {
    "pt": "pytorch",
    "torch": "pytorch",
    "pytorch": "pytorch",
    "np": "numpy",
    "numpy": "numpy",
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "jax": "flax",
    "flax": "flax",
    "mlx": "mlx",
    "paddle": "paddle",
}
_BACKENDS = ("mmap", "pread")
# Devices of torch that plug-ins add: torch.device() refuses them until the plug-in is imported.
_DEVICES = ("cpu", "cuda", "hpu", "mlu", "mps", "musa", "npu", "xla", "xpu")
# Maximum length of a header in bytes: the format's.
_MAX_HEADER_BYTES = 100_000_000

_READING = "Error while deserializing header"
_WRITING = "Error while serializing"


class SafetensorError(FormatError):
    """The content of a file, a name or an argument is not what it should be.

    Has the attributes of :class:`stele.Error`: ``code``, ``path``, ``file``, ``offset``, ``expected``, ``found``,
    ``hint``.
    """


class _SavingError(SafetensorError, OperatingSystemError):
    """The operating system failed during a save: a SafetensorError, as in safetensors, and an OSError."""


class _NoFolderError(SafetensorError, NotFoundError):
    """The folder to save to does not exist."""


def _error(text: str, cause: Error | None = None, kind: type[SafetensorError] = SafetensorError) -> SafetensorError:
    """Returns an error with the attributes of `cause`."""
    error = kind(text)
    error.message = text
    if cause is not None:
        for name in ("code", "message", "path", "file", "expected", "found", "offset", "hint"):
            setattr(error, name, getattr(cause, name))
    return error


@contextlib.contextmanager
def _translated(doing: str, *, saving: bool = False) -> Iterator[None]:
    """Raises errors of the library as those of safetensors. Errors of the system stay OSError."""
    try:
        yield
    except SafetensorError:
        raise
    except (OperatingSystemError, NotFoundError) as error:
        if not saving:
            raise
        kind = _NoFolderError if isinstance(error, NotFoundError) else _SavingError
        raise _error(f"{doing}: I/O error: {error}", error, kind) from error
    except MemoryLimitError:
        raise
    except Error as error:
        raise _error(f"{doing}: {error}", error) from error


# --- saving ---


class TensorSpec:
    """Describes a tensor in memory for :func:`serialize`: elements in row-major order, without gaps.

    The caller keeps the memory alive.

    Args:
        dtype: a name of NumPy or torch: ``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``, ``"float4_e2m1fn_x2"``, ...
        shape: the extents. For ``float4_e2m1fn_x2`` torch's, with two elements counted as one in the last axis.
        data_ptr: the address.
        data_len: the number of bytes.

    Raises:
        SafetensorError: the dtype is unknown.
    """

    __slots__ = ("_data_len", "_data_ptr", "_name", "_shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        if not isinstance(dtype, str):
            raise TypeError(f"TensorSpec: the dtype must be str, not {type(dtype).__name__}")
        if dtype not in _SPEC_DTYPES:
            raise _unknown_dtype(dtype)
        self._name = _SPEC_DTYPES[dtype]
        self._shape = [_unsigned(extent, "an extent") for extent in shape]
        self._data_ptr = _unsigned(data_ptr, "data_ptr")
        self._data_len = _unsigned(data_len, "data_len")
        if self._name == "f4_e2m1" and self._shape:
            self._shape[-1] *= 2

    @property
    def dtype(self) -> str:
        """The dtype as in a file's header: ``"F32"``."""
        return _CODES[self._name]

    @property
    def shape(self) -> list[int]:
        """The shape as in a file's header."""
        return list(self._shape)

    @property
    def data_ptr(self) -> int:
        """The address of the elements."""
        return self._data_ptr

    @property
    def data_len(self) -> int:
        """The number of bytes."""
        return self._data_len

    def __repr__(self) -> str:
        return (
            f"TensorSpec(dtype={self.dtype!r}, shape={self._shape}, data_ptr={self._data_ptr}, "
            f"data_len={self._data_len})"
        )


def _unknown_dtype(dtype: object, path: str = "") -> SafetensorError:
    error = _error(f'{path + ": " if path else ""}Unknown dtype "{dtype}". Supported dtypes: {", ".join(_SPEC_DTYPES)}')
    error.code, error.path, error.found = "not_representable", path, str(dtype)
    return error


def _not_contiguous(name: str) -> ValueError:
    return ValueError(
        f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Save the tensor that it is a"
        " part of, or call `.contiguous()` before saving."
    )


def _unsigned(number: Any, what: str) -> int:
    value = operator.index(number)
    if not 0 <= value < 1 << 64:
        raise OverflowError(f"TensorSpec: {what} is not a number from 0 to 2^64 - 1: {value}")
    return value


def _row_of(name: str, spec: Any) -> tuple[Any, ...]:
    """Returns a row of _stele.build() for a TensorSpec."""
    if not isinstance(spec, TensorSpec):
        raise TypeError(f"{name}: a TensorSpec is expected, not {type(spec).__name__}")
    bits = math.prod(spec._shape) * _BITS[spec._name]
    # The address is only read as far as its length, which must be the one of dtype and shape.
    if bits % 8 or bits // 8 != spec._data_len or (spec._data_len and not spec._data_ptr):
        error = _error(f"{_WRITING}: {name}: dtype, shape, address and length do not fit together: {spec}")
        error.code, error.path, error.found = "invalid_argument", name, f"{spec._data_len} bytes"
        error.expected = f"{bits / 8:g} bytes"
        raise error
    return (name, spec._name, tuple(spec._shape), spec, spec._data_ptr, None, False)


def _write(rows: Iterable[tuple[Any, ...]], metadata: Mapping[str, str] | None, path: str | None = None) -> Any:
    """Saves rows of _stele.build() to a file, in one step; or returns its bytes."""
    strings = _strings(metadata)
    with _translated(_WRITING, saving=True):
        model = File(_stele.build(_with_named_ties(list(rows), strings), {}, strings, None))
        if path is None or _keeps(path):
            return _save_any(model, path, format="safetensors")
        _save_under(model, path)


def _with_named_ties(rows: list[tuple[Any, ...]], metadata: dict[str, str]) -> list[tuple[Any, ...]]:
    """Adds the ties that the metadata name, {removed name: kept name}: the library would otherwise mark them as plain
    metadata in the file, which the package does not."""
    numbers = {row[0]: number for number, row in enumerate(rows)}
    for name, kept in sorted(metadata.items()):
        if name == "format" or not name or name in numbers or kept not in numbers:
            continue
        if not any(other.startswith(name + ".") for other in numbers):
            rows.append((name, numbers[kept]))
    return rows


def _keeps(path: str) -> bool:
    """Returns true if the library saves to this very path; to a new name without an extension, it adds its own."""
    folder, name = os.path.split(path)
    return "." in name[1:] or os.path.exists(path) or not os.path.isdir(folder or ".")


def _save_under(model: File, path: str) -> None:
    """Saves to a temporary name beside the path, and renames the file."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".stele-{secrets.token_hex(8)}.safetensors")
    try:
        _save_any(model, temporary, format="safetensors")
        try:
            os.replace(temporary, path)
            directory = os.open(folder or ".", os.O_RDONLY)
            try:
                os.fsync(directory)  # the new name must survive a power loss, too
            finally:
                os.close(directory)
        except OSError as error:
            raise _error(f"{_WRITING}: I/O error: {error.strerror}: {path}", None, _SavingError) from error
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _items(tensors: Any) -> Iterator[tuple[str, Any]]:
    """Returns the names and tensors of a dict. Errors: TypeError."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"a dict of tensors is expected, not {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"a tensor's name must be str, not {type(name).__name__}: {name!r}")
        yield name, tensor


def _strings(metadata: Mapping[str, str] | None) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"the metadata must be a dict, not {type(metadata).__name__}")
    for pair in metadata.items():
        for text in pair:
            if not isinstance(text, str):
                raise TypeError(f"the metadata has only str, not {type(text).__name__}: {text!r}")
    return dict(metadata)


def _path(filename: Any) -> str:
    """Returns the path as str. Errors: TypeError."""
    path = filename if isinstance(filename, str) else os.fspath(filename)
    if not isinstance(path, str):
        raise TypeError(f"a path must be str or os.PathLike of str, not {type(path).__name__}")
    return os.path.join(".", "-") if path == "-" else path  # the library reads "-" as standard input


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these tensors.

    Raises:
        SafetensorError: the format cannot hold a tensor or a string.
        TypeError: a name is not a str, a tensor not a TensorSpec, a string of the metadata not a str.
    """
    data: bytes = _write([_row_of(name, spec) for name, spec in _items(tensor_dict)], metadata)
    return data


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file with these tensors, in one step: a reader sees the old file or the new one.

    Raises:
        SafetensorError: as :func:`serialize`; also an OSError if the file cannot be written.
    """
    _write([_row_of(name, spec) for name, spec in _items(tensor_dict)], metadata, _path(filename))


# --- opening ---


def _header_problem(head: bytes, size: int) -> str:
    """Returns why a file of `size` bytes that begins so has no header; "" if it may have one."""
    if size < 8:
        return f"the file is too short for a header: expected at least 8 bytes, found {size}"
    length = int.from_bytes(head[:8], "little")
    if length > _MAX_HEADER_BYTES:
        return f"the header is too large: expected at most {_MAX_HEADER_BYTES} bytes, found {length}"
    if length > size - 8:
        return f"the file ends inside the header: expected {length} bytes, found {size - 8}"
    begin = head[8 : 8 + length].lstrip(b" \t\r\n")
    return "" if begin.startswith(b"{") else "the header is not a JSON object"


def _open(source: Any, doing: str, name: str) -> File:
    """Opens a path or a buffer that must have the format safetensors. Errors: SafetensorError, OSError."""
    with _translated(doing):
        try:
            file = _open_any(source, parts=True)  # every tensor, as the package does
        except FormatError as error:
            # The first bytes tell more than an error of the format that the name of the file suggests.
            if isinstance(source, str):
                with open(source, "rb") as stream:
                    head, size = stream.read(1024), os.fstat(stream.fileno()).st_size
            else:
                head, size = bytes(source[:1024]), len(source)
            problem = _header_problem(head, size)
            if not problem:
                raise
            if error.code == "unsupported" and ": " in error.found:  # a kind of file, and what to do with it
                problem += f"; found {error.found}"
            raise _error(f"{doing}: {problem} ({name})", error) from error
    if file.format != "safetensors":
        other = _error(f"{doing}: expected the format safetensors, found {file.format} ({name}); use stele.open()")
        other.code, other.file, other.expected, other.found = "unsupported", name, "safetensors", file.format
        raise other
    return file


def _open_path(filename: Any) -> File:
    """Opens a file by its path. Errors: FileNotFoundError, OSError, SafetensorError, TypeError."""
    path = _path(filename)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        missing = NotFoundError(f"No such file or directory: {filename}")
        missing.code, missing.message, missing.file = "not_found", "No such file or directory", path
        raise missing from error
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "A folder is not a safetensors file; use stele.open()", path)
    return _open(path, _READING, path)


def _open_bytes(data: Any) -> File:
    """Opens bytes, or another buffer. Errors: SafetensorError, TypeError."""
    return _open(memoryview(data).cast("B"), "Error while deserializing", "bytes")


def _named_ties(file: File) -> set[str]:
    """Returns the names that the file has only as keys of its metadata, {removed name: kept name}: the package does not
    know these ties."""
    pairs = {name: kept for name, kept in file.metadata.items() if name != "format"}
    leaves = file._index() if pairs else {}
    return {name for name, kept in pairs.items() if name != kept and leaves.get(name, -1) == leaves.get(kept, -2)}


class _Reader:
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
        self._views: dict[int, _Array] | None = None

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
        error = _error(text)
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
        whole = [t for t in found if t.dtype not in _PACKED]
        arrays = dict(zip((t.name for t in whole), self._read(whole)))
        return {t.name: self._torch(arrays[t.name], t) if t.name in arrays else self._on_cpu(t) for t in found}

    def part(self, name: str, index: Any) -> Any:
        """Returns a part of a tensor, of which only that part is read."""
        found = self.find(name)
        if self._framework == "pytorch" and (not self._own or found.dtype in _PACKED):
            return self._to_device(self._on_cpu(found)[index])
        index = self._checked(index, found)
        reader = self.file._reader
        with _translated("Error while reading"):
            if found.dtype in _PACKED:
                array = found.numpy()
                if array.shape != found.shape:
                    raise self.failed(f"{name}: parts of {_CODES[found.dtype]} need ml_dtypes", "unsupported", name)
                array = array[index + (...,)]
            elif not self._own and reader.viewable(found._leaf, True):
                array = found.numpy()[index + (...,)]
            else:
                start, length, after = _box(index, found.shape)
                box = reader.region(found._leaf, start, length)
                array = _dtypes.view_as(box, found.dtype, box.shape)[after + (...,)]
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
            yield found.name, _CODES[found.dtype], found.shape, bytearray(self._bytes(found))

    def _bytes(self, found: Tensor) -> _Array:
        """Returns the bytes of a tensor: a view, or read."""
        with _translated("Error while reading"):
            array: _Array = self.file._reader.arrays([found._leaf], False, False, False, None)[0]
        return array.reshape(-1).view(np.uint8)

    def _read(self, found: list[Tensor]) -> list[_Array]:
        """Returns arrays that can be changed; views that cannot, where the framework copies them."""
        view = not self._own and self._framework in ("flax", "mlx", "paddle")
        with _translated("Error while reading"):
            return self.file._arrays(found, copy=not view, writable=not view)

    def _mapped(self) -> dict[int, _Array]:
        """Returns the elements of all aligned tensors, as views of one private mapping, by their numbers in the file.

        One mapping for each tensor would exceed the system's number of mappings (65530 on Linux) with large models.
        """
        with self._lock:
            if self._views is None:
                reader = self.file._reader
                leaves = [leaf for leaf in dict.fromkeys(self.file._index().values()) if reader.viewable(leaf, True)]
                with _translated("Error while reading"):
                    self._views = dict(zip(leaves, reader.arrays(leaves, False, True, False, None)))
            return self._views

    # --- torch ---

    def _on_cpu(self, found: Tensor) -> Any:
        """Returns a torch tensor: a view of the mapping, or read."""
        packed = found.dtype in _PACKED
        array = None if self._own else self._mapped().get(found._leaf)
        if array is None:
            array = self._bytes(found).copy() if packed else self._read([found])[0]
        elif not packed:
            array = _dtypes.view_as(array, found.dtype, found.shape)
        return self._torch(array, found)

    def _torch(self, array: _Array, found: Tensor) -> Any:
        """Returns a torch tensor with an array's memory; F4 has raw bytes, all of them."""
        import torch

        from .. import torch as bridge

        known, shape = self._torch_type(found)
        if found.dtype in _PACKED:
            return torch.from_numpy(array.reshape(-1)).view(known).reshape(shape)
        return bridge.tensor_of(array, found.dtype)

    def _torch_type(self, found: Tensor) -> tuple[Any, tuple[int, ...]]:
        """Returns dtype and shape in torch, whose elements of F4 are pairs. Errors: SafetensorError."""
        import torch

        from .. import torch as bridge

        name, packed = found.name, found.dtype == "f4_e2m1"
        known = getattr(torch, "float4_e2m1fn_x2", None) if packed else bridge._BY_NAME.get(found.dtype)
        if known is None:
            code = _CODES[found.dtype]
            raise self.failed(f"Dtype not understood: {code}: torch has none for {name}", "unsupported", name)
        if not packed:
            return known, found.shape
        if not found.shape or found.shape[-1] % 2:
            text = f"{name}: torch has only pairs of F4 elements; the shape is {list(found.shape)}"
            raise self.failed(text, "unsupported", name)
        return known, (*found.shape[:-1], found.shape[-1] // 2)

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
            with _translated("Error while reading"):
                self.file._reader.read_into(found._leaf, memory, None)
        return host

    def _to_device(self, tensor: Any) -> Any:
        return tensor if self._device == "cpu" else tensor.to(self._device)

    # --- other frameworks ---

    def _converted(self, array: _Array) -> Any:
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

    def _checked(self, index: Any, found: Tensor) -> tuple[Any, ...]:
        """Returns an index of slices and numbers in range; the rules are those of safetensors.

        Unlike in NumPy, a slice that ends beyond its axis is an error.
        """
        name, shape = found.name, found.shape
        if isinstance(index, list):
            if index:
                raise self.failed("Non empty lists are not implemented", "unsupported", name)
            index = slice(0, 0)
        parts = list(index) if isinstance(index, tuple) else [index]
        for position, part in enumerate(parts):
            if not (part is Ellipsis or isinstance(part, slice)):
                try:
                    parts[position] = operator.index(part)
                except TypeError:
                    text = f"Unsupported slice index at position {position}: expected slice, int, or ellipsis"
                    raise self.failed(text, "invalid_argument", name) from None
            elif isinstance(part, slice):
                step = 1 if part.step is None else operator.index(part.step)
                if step < 1:
                    text = f"Slice step must be a positive integer, got {step}"
                    raise self.failed(text, "invalid_argument", name)
                low, high = (None if end is None else operator.index(end) for end in (part.start, part.stop))
                parts[position] = slice(low, high, step)
        dots = [position for position, part in enumerate(parts) if part is Ellipsis]
        if len(dots) > 1:
            raise self.failed("Only one ellipsis (...) is allowed in slice index", "invalid_argument", name)
        if dots:
            parts[dots[0] : dots[0] + 1] = [slice(None, None, 1)] * max(0, len(shape) - len(parts) + 1)
        for axis, (part, extent) in enumerate(zip(parts, shape)):
            ends = (part.start, part.stop) if isinstance(part, slice) else (part,)
            for end in ends:
                if end is not None and end + extent < 0:
                    text = f"Invalid index {end} for dimension {axis} of size {extent}"
                    raise self.failed(text, "invalid_argument", name)
            inside = [end + extent if end is not None and end < 0 else end for end in ends]
            parts[axis] = slice(inside[0], inside[1], part.step) if isinstance(part, slice) else inside[0]

        def refused(why: str) -> SafetensorError:
            text = f"Error during slicing [{', '.join(map(_shown, parts))}] with shape {list(shape)}: {why}"
            return self.failed(text, "invalid_argument", name)

        if len(parts) > len(shape):
            raise refused("more slicing indexes than dimensions in tensor")
        for axis, (part, extent) in reversed(list(enumerate(zip(parts, shape)))):
            low, high = (part.start or 0, part.stop) if isinstance(part, slice) else (part, part + 1)
            high = extent if high is None else high
            if (low >= extent or high > extent) and not low == high == extent == 0:
                asked = low if low >= extent else high - 1
                raise refused(f"index {asked} out of bounds for tensor dimension #{axis} of size {extent}")
        return tuple(parts)


def _shown(part: Any) -> str:
    """Returns an index as it is written."""
    if not isinstance(part, slice):
        return str(part)
    text = ":".join("" if end is None else str(end) for end in (part.start, part.stop))
    return text if part.step == 1 else f"{text}:{part.step}"


def _paddle_tensor(array: _Array, device: str | int = "cpu") -> Any:
    """Returns an array as a tensor of Paddle, which knows no dtype of ml_dtypes: their bytes are viewed."""
    paddle = importlib.import_module("paddle")
    place = f"gpu:{device}" if isinstance(device, int) else device.replace("cuda", "gpu")
    name = _dtypes.NAMES.get(array.dtype.name)
    if name not in _dtypes.ML_DTYPES:
        return paddle.to_tensor(array, place=place)
    raw = paddle.to_tensor(array.view(np.int16 if name == "bf16" else np.uint8), place=place)
    return raw.view(getattr(paddle, array.dtype.name))


def _device(device: Any, framework: str) -> str | int:
    """Checks a device. Errors: SafetensorError."""
    if device is None:
        return "cpu"
    if isinstance(device, int) and device >= 0:
        return int(device)
    text = device if isinstance(device, str) else str(device)
    kind, colon, number = text.partition(":")
    if kind in _DEVICES and (not colon or number.isdecimal()):
        if kind == "mps" and number not in ("", "0"):
            raise _error(f"device {text} is invalid: only mps or mps:0 is supported")
        return kind if kind in ("cpu", "mps") else f"{kind}:{number or 0}"
    if framework == "pytorch" and not isinstance(device, (int, float)):
        import torch

        with contextlib.suppress(RuntimeError):
            return str(torch.device(text))
    raise _error(f"device {text} is invalid")


class PySafeSlice:
    """A tensor of an opened file of which parts can be read: ``slice[0, 2:4]``. Made by ``get_slice``."""

    __slots__ = ("_name", "_reader")

    def __init__(self, reader: _Reader, name: str) -> None:
        self._reader = reader
        self._name = name

    def get_shape(self) -> list[int]:
        """Returns the shape of the whole tensor."""
        return list(self._reader.find(self._name).shape)

    def get_dtype(self) -> str:
        """Returns the dtype as in the file: ``"F32"``."""
        return _CODES[self._reader.find(self._name).dtype]

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
        _path(filename)
        self._reader: _Reader | None = None
        kind, place = _arguments(framework, device, backend)
        self._begin(_open_path(filename), kind, place, backend)

    def _begin(self, file: File, framework: str, device: str | int, backend: str) -> None:
        if device != "cpu" and framework not in ("pytorch", "paddle"):
            raise _error(f"Device {device} is not supported for framework {framework}")
        if framework == "pytorch":
            importlib.import_module("torch")  # its absence is an error here, not at the first tensor
        self._reader = _Reader(file, framework, device, own=backend == "pread")

    def _opened(self) -> _Reader:
        if self._reader is None:
            error = _error("File is closed")
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


def _arguments(framework: Any, device: Any, backend: Any) -> tuple[str, str | int]:
    """Returns the framework and the device. Errors: SafetensorError, TypeError."""
    for name, text in (("framework", framework), ("backend", backend)):
        if not isinstance(text, str):
            raise TypeError(f"safe_open: {name} must be str, not {type(text).__name__}")
    kind = _FRAMEWORKS.get(framework)
    if kind is None:
        raise _error(f"framework {framework} is invalid")
    place = _device(device, kind)
    if backend not in _BACKENDS:
        raise _error(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    return kind, place


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
        for name, dtype, shape, data in _Reader(_open_bytes(bytes), "numpy").raw()
    ]


def _load(data: Any, framework: str, device: str | int = "cpu") -> dict[str, Any]:
    """Returns the tensors in a file's bytes, with memory of their own."""
    return _Reader(_open_bytes(data), framework, device).tensors()
