"""Opened files: a mapping of names to lazy tensors."""

from __future__ import annotations

import copy
import html
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _dtypes, _stele, devices
from ._errors import Error, make, missing
from ._interrupt import Progress, interruptible_read
from ._names import tree
from ._options import checked, dtype_name, file_name
from ._tensor import Opened, Tensor, check_memory

if TYPE_CHECKING:
    import torch

# Makes the library's list of formats: a process that forks while a thread makes it could never use it.
_stele.formats()
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


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
        self._opened = Opened(model, keep)
        self._leaves: dict[str, int] | None = None
        self._tensors: dict[str, Tensor] = {}
        self._options = options or {}
        self.path = path
        self._absolute = path if path is None or _URL.match(path) else os.path.abspath(path)
        self._identity = _identity(path, model) if path is not None else None
        if self._absolute is not None:
            self._opened.place = (self._absolute, self._options, self._identity)

    @property
    def _model(self) -> Any:
        return self._opened.model

    @property
    def _keep(self) -> Any:
        return self._opened.keep

    def _index(self) -> dict[str, int]:
        if self._leaves is None:
            self._leaves = self._model.leaves()
        return self._leaves

    # --- the mapping ---

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            leaf = self._index().get(name)
            if leaf is None:
                raise missing(str(name), self._index(), self.path or "")
            tensor = self._tensors[name] = Tensor(self._opened, name, leaf)
        elif self._opened.closed:
            raise ValueError("the file is closed")
        return tensor

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
        return tree([*self.items(), *self._model.values().items()])

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
        raw = self._opened.raw(list(index.values()), self.nbytes, copy, writable, False, progress)
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
        from . import _torch_tensors

        tensors = list(self.items())
        raw = self._opened.raw([t._leaf for _, t in tensors], self.nbytes, copy, True, False, progress)
        return {name: _torch_tensors.tensor_of_file(array, t) for (name, t), array in zip(tensors, raw)}

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
        tensors: dict[str, devices.DeviceTensor] = interruptible_read(
            sum(self[name].nbytes for name in chosen),
            lambda told: devices.load(self, chosen, place, bypass_cache, told),
            progress,
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
                check_memory(*to_devices[-1])
            else:
                others.append((tensor, out))
        for tensor, out in others:
            tensor.read_into(out, progress=progress)
        self._opened.read_to_devices(to_devices, progress)

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
        self._opened.close()
        self._leaves = None
        self._tensors = {}

    def __enter__(self) -> File:
        self._model  # raises if closed
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_file_of, (self._opened,))  # which its tensors share, in a pickle, too

    def __copy__(self) -> File:
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        if self._opened.closed:
            return "<stele.File: closed>"
        place = f" {self.path!r}" if self.path else ""
        return f"<stele.File{place}: {self.format or 'in memory'}, {len(self)} tensors, {self.nbytes:,} bytes>"

    def _repr_html_(self) -> str:
        if self._opened.closed:
            return html.escape(repr(self))
        rows = []
        for number, (name, tensor) in enumerate(self.items()):
            if number == 50:
                rows.append(f"<tr><td colspan=4>and {len(self) - number} more</td></tr>")
                break
            shape = " × ".join(map(str, tensor.shape)) or "1"
            cells = (html.escape(name), html.escape(tensor.dtype_name), shape, f"{tensor.nbytes:,}")
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


def _file_of(opened: Opened) -> File:
    assert opened.place is not None
    path, options, _ = opened.place
    file = File(opened.model, path, options)
    file._opened = opened
    return file


def _reopen(path: str, options: dict[str, Any], identity: list[tuple[str, int, int]] | None) -> Opened:
    cause: Error | None = None
    try:
        file = open(path, **options)
        if file._identity == identity:
            return file._opened
    except Error as error:
        cause = error
    raise make("io", "the file has changed since it was pickled", file=path) from cause


def _open_part(source: Any, offset: int, length: int | None, options: dict[str, Any]) -> File:
    """Opens a part of an open file, or of the file at a path."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError("open: offset and length are not negative")
    if isinstance(source, (str, os.PathLike)):
        path = file_name(os.fsdecode(source))
        try:
            number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            code = "not_found" if isinstance(error, FileNotFoundError) else "io"
            raise make(code, error.strerror or str(error), file=path) from error
        try:
            return _open_number(number, offset, length, path, options)
        finally:
            os.close(number)
    if isinstance(source, int) and not isinstance(source, bool):
        return _open_number(source, offset, length, f"descriptor {source}", options)
    raise TypeError(f"open: offset and length need a path or the number of an open file, not {type(source).__name__}")


def _open_number(number: int, offset: int, length: int | None, name: str, options: dict[str, Any]) -> File:
    if sys.platform == "win32":
        import msvcrt

        number = msvcrt.get_osfhandle(number)
    return File(_stele.open_part(number, offset, length, name, options), None, options)


def open(  # noqa: A001
    source: Any,
    *,
    names: str | os.PathLike[str] | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    parts: bool = False,
    raw: bool = False,
    optimizer: str | None = None,
    parameters: str | os.PathLike[str] | None = None,
    buffers: str | Sequence[str] | None = None,
    offset: int | None = None,
    length: int | None = None,
) -> File:
    """Opens a model file of any format. Tensors are read when they are asked for.

    Args:
        source: a path; or bytes, or any buffer; or a file object that can seek. A folder that is a model (a checkpoint
            of TensorFlow, a set of shards) is one path.
        offset, length: the part of the file that is the model, in a package or in another file; a length of None: to
            the end. With them, `source` is a path or the number of an open file, which may be closed afterwards.
        names: the names for a file without names: a layout (.txt), a Paddle program, or a model.
        tag: the tag of an archive to open; by default the newest.
        part: opens only the part below this path, such as ``"model_state_dict"``.
        limit: allows tensors of up to this size together, for example ``"5G"`` or a number of bytes, if they share
            elements.
        ignore_checksums: does not compare the checksums of a PyTorch file.
        void1, void2: the dtypes of NumPy's elements without a type, as NumPy stores those of ml_dtypes: of 1 byte, as
            ``"f8_e4m3fn"``, and of 2 bytes, ``"bf16"``; by a name or a dtype.
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
        void1=void1 and dtype_name(void1),
        void2=void2 and dtype_name(void2),
        parts=parts,
        raw=raw,
        optimizer=optimizer,
        parameters=parameters,
        buffers=buffers,
    )
    options = {name: value for name, value in options.items() if value}
    if offset is not None or length is not None:
        return _open_part(source, offset or 0, length, options)
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
