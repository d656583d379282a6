"""Saving arrays, in any format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _dtypes, _stele, devices
from ._drivers import Memory
from ._errors import Report, make
from ._file import File
from ._interrupt import Progress, Stoppable, interruptible
from ._options import checked, dtype_name, file_name
from ._tensor import Tensor

__all__ = ["model_of", "save"]


def save(
    tensors: Mapping[str, Any] | Sequence[Any] | File,
    path: Any = None,
    *,
    format: str | None = None,  # noqa: A002
    precision: Any = None,
    quantize: int | str | None = None,
    metadata: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
    ties: Mapping[str, str] | None = None,
    optimizer: Mapping[str, Mapping[str, Any]] | None = None,
    compress: bool = False,
    shard: str | int | None = None,
    to_tag: str | None = None,
    append: bool = False,
    durability: str = "full",
    allow_loss: bool = False,
    allow_overflow: bool = False,
    overwrite: bool = True,
    dry_run: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Any:
    """Saves tensors to a file, in one step: a reader sees the old file or the new one, whole.

    Args:
        tensors: nested dicts, lists and tuples of tensors, or an opened file. A tensor is a NumPy array, a torch
            tensor, a tensor of an opened file (read piece by piece), or an object with DLPack or the buffer protocol;
            in any memory order, with any strides, in either byte order. One in the memory of a device is read from there
            piece by piece; it must be contiguous, unless it is torch's. Python's numbers, strings, None, and empty dicts
            and lists are values. Names are joined by dots; those in a list are its numbers from 0 on. Torch tensors that share all their memory are saved once, as ties.
        path: the file to write; its extension is the format, and a path without one gets that of `format`. A file
            object; or None: returns the file as bytes.
        format: the name of the format (``stele.formats()``) or an extension of it, if the path's is another.
        precision: stores floats as ``f64``, ``f32``, ``f16`` or ``bf16``, or by the names and dtypes of NumPy and torch; or matrices as blocks: ``q8_0``, ``q4_K``,
            ...; or mixed like llama.cpp: ``Q4_K_M``, ...
        quantize: stores weights as checkpoints of the Hugging Face hub do: ``fp8``, ``int4``, ``int8``, ``nvfp4``,
            ``mxfp4``, ``mxfp8``, ``gptq``, ``awq`` or ``nf4`` (``int4:64`` has groups of 64); or all floats as integers
            of 2 to 8 bits.
        metadata: strings, in formats that have them.
        values: values by path, besides those in `tensors`.
        properties: typed properties, as in GGUF files.
        ties: ``{name: name of a tensor}``: second names of tensors.
        optimizer: ``{kind: {name: tensor}}``: optimizer state, in formats of checkpoints.
        compress: compresses a .stele, .json or .zip file.
        shard: writes safetensors shards of at most this size, as ``"5GB"``.
        to_tag: the tag to write to an archive.
        append: adds the tag to an existing archive.
        durability: ``"full"`` survives a power loss; ``"process"`` a crash of this process.
        allow_loss: drops and reports what the format cannot hold, instead of failing.
        allow_overflow: numbers beyond the range become infinite, and are counted.
        overwrite: if False, an existing file is an error.
        dry_run: writes nothing; the report lists what would be lost.
        threads: the maximum number of threads; 0: all.
        progress: a function ``(done, total)``, in bytes; returning False cancels the save. ``tqdm`` works too:
            ``progress=stele.progress(tqdm(unit="B", unit_scale=True))``.

    Returns:
        The report; for ``path=None`` the bytes of the file, which must then hold all (a file object returns a report).

    Raises:
        FormatError: the format cannot hold a part of `tensors` (code ``not_representable``).
        OperatingSystemError: the file cannot be written; ExistsError: it exists.
        TypeError: an object is no tensor and no value.
    """
    model, kept = model_of(tensors, metadata=metadata, values=values, properties=properties, ties=ties)
    options = checked(
        "save", to=format, precision=precision and dtype_name(precision), quantize=quantize, compress=compress, shard=shard, to_tag=to_tag, append=append,
        durability=durability, allow_loss=allow_loss, allow_overflow=allow_overflow, overwrite=overwrite,
        dry_run=dry_run, threads=threads,
    )
    states = {kind: model_of(state) for kind, state in (optimizer or {}).items()}
    arrays = {kind: state for kind, (state, _) in states.items()}
    if path is None and format is None:
        raise ValueError("save: bytes need a format, such as format='safetensors'")
    target = file_name(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else path
    if target is not None and not isinstance(target, str):
        if not hasattr(target, "write"):
            raise TypeError(f"save: not a path or a file object: {type(path).__name__}")
        if format is None:
            raise ValueError("save: a file object needs a format, such as format='safetensors'")
    if append and not isinstance(target, str):
        raise ValueError("save: only an archive at a path can be appended to")
    stoppable = Stoppable(progress)
    report, _, data = interruptible(lambda: _stele.save(model, target, arrays, options, stoppable), stoppable.stop)
    del kept, states
    if data is None:
        return report
    for row in report:
        if row.what in ("lost", "overflowed"):
            raise make("not_representable", "bytes have no report of what is lost", row.path, found=row.detail,
                       hint="save to a file object, such as io.BytesIO()")
    return data


def model_of(
    tensors: Mapping[str, Any] | Sequence[Any] | File,
    *,
    metadata: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
    ties: Mapping[str, str] | None = None,
) -> tuple[Any, list[Any]]:
    """Returns the model of the tensors, and what must live as long as it is used."""
    if isinstance(tensors, File) and not (metadata or values or properties or ties):
        return tensors._model, [tensors]
    gathering = _Gathering()
    if isinstance(tensors, File):
        if not values and not ties:
            return _stele.with_metadata(tensors._model, dict(metadata or {}), properties and dict(properties)), [tensors]
        gathering.file(tensors)
        metadata = {**tensors.metadata, **(metadata or {})}
        properties = properties if properties is not None else tensors.properties
    elif isinstance(tensors, (Mapping, list, tuple)):
        gathering.add(None, tensors)
    else:
        raise TypeError(f"not a dict of tensors: {type(tensors).__name__}")
    for name, value in (values or {}).items():
        gathering.value(name, value)
    for name, target in (ties or {}).items():
        gathering.tie(name, target)
    model = _stele.build(
        gathering.rows,
        gathering.values,
        dict(metadata or {}),
        None if properties is None else dict(properties),
        tensors._model if isinstance(tensors, File) else None,
    )
    return model, gathering.kept


class _Gathering:
    """Collects the rows of _stele.build()."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.values: dict[str, Any] = {}
        self.kept: list[Any] = []
        self._names: dict[str, int] = {}
        self._shared: dict[tuple[Any, ...], int] = {}
        self._leaves: dict[tuple[int, int], int] = {}

    def file(self, file: File) -> None:
        for name, tensor in file.items():
            self.add(name, tensor)
        self.values.update(file._model.values())

    def add(self, prefix: str | None, entry: Any) -> None:
        """Adds an entry, or all that are below it. `prefix` is its name; None: the entry is the root."""
        name = prefix or ""
        if type(entry) is np.ndarray:  # first, because it is the most frequent
            self._row(name, _described(name, entry))
        elif isinstance(entry, Tensor):
            self._leaf(name, entry)
        elif isinstance(entry, File):
            for below, tensor in entry.items():
                self._leaf(_join(prefix, below), tensor)
            for below, value in entry._model.values().items():
                self.value(_join(prefix, below), value)
        elif isinstance(entry, (Mapping, list, tuple)) and len(entry) == 0 and not hasattr(entry, "__array__"):
            if prefix is not None:
                self.value(prefix, {} if isinstance(entry, Mapping) else [])
        elif isinstance(entry, Mapping):
            for key, below in entry.items():
                if not isinstance(key, str):
                    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
                        key = str(key)
                    else:
                        raise TypeError(f"a name must be str, not {type(key).__name__}: {key!r}")
                self.add(_join(prefix, key), below)
        elif isinstance(entry, (list, tuple)) and not hasattr(entry, "__array__"):
            for number, below in enumerate(entry):
                self.add(_join(prefix, str(number)), below)
        elif entry is None or isinstance(entry, (bool, int, float, str, bytes)) and not isinstance(entry, np.number):
            self.value(name, entry)
        else:
            self._array(name, entry)

    def value(self, name: str, value: Any) -> None:
        if isinstance(value, np.generic):
            value = value.item()
        if name in self._names or name in self.values:
            raise ValueError(f"two entries have the name {name!r}")
        self.values[name] = value

    def tie(self, name: str, target: str) -> None:
        if target not in self._names:
            raise ValueError(f"ties: no tensor has the name {target!r}")
        self._row(name, (name, self._names[target]))

    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        if name in self._names or name in self.values:
            raise ValueError(f"two entries have the name {name!r}")
        self._names[name] = len(self.rows)
        self.rows.append(row)

    def _leaf(self, name: str, tensor: Tensor) -> None:
        model = tensor._opened.model
        self.kept.append(tensor._opened)
        first = self._leaves.setdefault((id(model), tensor._leaf), len(self.rows))
        self._row(name, (name, model, tensor._leaf) if first == len(self.rows) else (name, first))

    def _array(self, name: str, entry: Any) -> None:
        if _dtypes.is_torch(entry):
            from . import _torch_tensors

            self.kept.append(entry)  # a later tensor must not get its address
            row, shared = _torch_tensors.row_of(entry, name)
            first = self._shared.setdefault(shared, len(self.rows)) if shared else len(self.rows)
            if first != len(self.rows):
                self._row(name, (name, first))
                return
            self._row(name, row)
            return
        if devices.is_on_device(entry) and (devices.reaches(entry) or not hasattr(entry, "__array__")):
            self._row(name, _on_device(name, devices.memory_of(entry, name)))
            return
        self._row(name, _described(name, entry))


def _on_device(name: str, memory: Memory) -> tuple[Any, ...]:
    place = (memory.driver, memory.ordinal)
    return (name, memory.dtype, memory.shape, memory.owner, memory.address, place)


def _join(prefix: str | None, name: str) -> str:
    return name if prefix is None else f"{prefix}.{name}"


# Dtypes of NumPy in the machine's byte order: hashing a dtype is faster than its name.
_PLAIN = {np.dtype(other): name for name, other in _dtypes.NUMPY.items()}


def _described(name: str, entry: Any) -> tuple[Any, ...]:
    """Returns the row of an array of NumPy, or of an object that becomes one."""
    array = entry if isinstance(entry, np.ndarray) else _as_array(name, entry)
    plain = _PLAIN.get(array.dtype)
    if plain is not None and type(array) is np.ndarray and array.flags.c_contiguous:
        return (name, plain, array.shape, array, array.__array_interface__["data"][0], None, False)
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise TypeError(f"{name}: no format has masks; use .filled()")
        array = array.data
    dtype = _dtypes.NAMES.get(array.dtype.name)
    field = array.dtype.names
    if dtype is None and field is not None and len(field) == 1 and field[0] in _dtypes.ML_DTYPES:
        raw = np.dtype("u2" if field[0] == "bf16" else "u1")
        if array.dtype[0].newbyteorder("=") == raw and array.dtype.itemsize == raw.itemsize:
            dtype, array = field[0], array.view(array.dtype[0])  # as numpy() returns them without ml_dtypes
    if dtype is None:
        raise TypeError(f"{name}: no format has the dtype {array.dtype} of NumPy")
    shape = array.shape
    if dtype in _dtypes.PACKED or dtype in _dtypes.PACKED_6:
        array = _dtypes.pack_4(array) if dtype in _dtypes.PACKED else _dtypes.pack_6(array)
    address = array.__array_interface__["data"][0] if array.dtype.hasobject is False and array.dtype.kind != "V" else array.ctypes.data
    strides = None if array.flags.c_contiguous else array.strides
    swapped = not array.dtype.isnative
    return (name, dtype, shape, array, address, strides, swapped)


def _as_array(name: str, entry: Any) -> np.ndarray[Any, Any]:
    if hasattr(entry, "__array__") or hasattr(entry, "__array_interface__"):
        return np.asarray(entry)
    if hasattr(entry, "__dlpack__"):
        return np.from_dlpack(entry)
    try:
        return np.asarray(memoryview(entry))
    except (TypeError, ValueError, NotImplementedError):
        raise TypeError(f"{name}: not a tensor and not a value: {type(entry).__name__}") from None


def report_of(rows: Any) -> Report:
    """Returns the report of the rows in a JSON document of the command."""
    return Report([(row["what"], row["path"], row.get("detail", "")) for row in rows])
