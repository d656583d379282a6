"""Torch modules: their state as tensors and values of a file, and loads by their own load_state_dict()."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch as _torch
from torch.nn.modules.batchnorm import _NormBase
from torch.utils import _pytree

from . import devices
from ._errors import make
from ._file import File
from ._interrupt import Progress
from ._names import listed, tree
from ._tensor import Tensor
from ._torch_tensors import DTYPES, can_be_read, check_memory, driver_kind, place_of, shape_of, type_of

_increment_version: Any = getattr(_torch.autograd.graph, "increment_version", None)  # since 2.1
_EXTRA = "_extra_state"  # of torch: the last part of the name of what get_extra_state() returns


# --- saving ---


def state_of(model: _torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Returns the tensors of a module, and the extra state that has none, by torch's names; and the versions of its parts
    that are not 1.

    Raises:
        TypeError: load_model() could not give extra state back as it is.
    """
    state = model.state_dict()
    tensors: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, entry in state.items():
        if isinstance(entry, _torch.Tensor) or not _is_extra(name):
            tensors[name] = entry
            continue
        has_tensors = _check_extra(name, entry)
        (tensors if has_tensors else values)[name] = entry
    metadata = getattr(state, "_metadata", {})
    return tensors, values, {path: part["version"] for path, part in metadata.items() if part.get("version", 1) != 1}


def _is_extra(name: str) -> bool:
    return name == _EXTRA or name.endswith("." + _EXTRA)


def _check_extra(name: str, entry: Any) -> bool:
    """Returns True if extra state has tensors: their names in the file are then the keys of its dicts and lists."""
    if isinstance(entry, _torch.Tensor):
        return True
    if isinstance(entry, dict):
        below = [_check_extra(f"{name}.{key}", value) for key, value in entry.items()]
        has_tensors = any(below)
        plain = all(isinstance(key, str) for key in entry)
        if has_tensors:
            plain = plain and not any(key == "" or "." in key or "\\" in key or key.isdigit() for key in entry)
    elif isinstance(entry, list):
        has_tensors, plain = any([_check_extra(f"{name}.{i}", value) for i, value in enumerate(entry)]), True
    else:
        has_tensors, plain = False, entry is None or type(entry) in (bool, int, float, str, bytes)
    if has_tensors:
        plain = plain and all(value not in ({}, []) for value in _below(entry) if isinstance(value, (dict, list)))
    if not plain:
        raise TypeError(
            f"{name}: extra state of the type {type(entry).__name__} cannot be stored; it may have tensors, numbers, str,"
            " bytes, None, lists, and dicts with names as keys"
        )
    return has_tensors


def _below(entry: Any) -> Iterator[Any]:
    return iter(entry.values() if isinstance(entry, dict) else entry)


# --- loading ---


def _extra_of(file: File) -> dict[str, Any]:
    """Returns the extra state in a file by its name.

    Raises:
        TypeError: it has an object that the file's format describes, but that is not made.
    """
    containers: dict[str, str] = json.loads(file._model.origin.get("pytorch.containers", "{}"))
    entries: dict[str, dict[str, Any]] = {}
    for name, value in [*((name, None) for name in file), *file._model.values().items()]:
        key = _extra_name(name)
        if key is not None:
            entries.setdefault(key, {})[name] = file[name].torch(copy=True) if name in file else _plain(name, value)
    for path in containers:
        key = _extra_name(path)
        if key is not None:
            entries.setdefault(key, {})
    found: dict[str, Any] = {}
    for key, below in entries.items():
        if key in below:
            found[key] = _tupled(key, below[key], containers)
        else:
            found[key] = _Containers(containers, below).made(key) if key in containers else _nested(key, below)
    return found


def _extra_name(name: str) -> str | None:
    """Returns the name of the extra state that a name belongs to."""
    parts = name.split(".")
    return ".".join(parts[: parts.index(_EXTRA) + 1]) if _EXTRA in parts else None


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, dict) and "__class__" in value:
        raise TypeError(f"{name}: extra state has an object of the class {value['__class__']}; load it with torch.load()")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _plain(name, item)
    return value


def _tupled(path: str, value: Any, containers: Mapping[str, str]) -> Any:
    """Returns a value of a file of PyTorch, whose lists may be tuples."""
    if not isinstance(value, list):
        return value
    items = [_tupled(f"{path}.{i}", item, containers) for i, item in enumerate(value)]
    return tuple(items) if containers.get(path) == "v" else items


class _Containers:
    """The containers of a file of PyTorch, by path; docs/formats/pytorch.md has their kinds. An entry belongs to the
    container with the longest path that begins its own path; its key is the rest."""

    def __init__(self, kinds: Mapping[str, str], entries: Mapping[str, Any]) -> None:
        self._kinds = kinds
        self._members: dict[str, dict[str, Any]] = {}
        for path, value in entries.items():
            self._add(path, _tupled(path, value, kinds))
        for path, kind in kinds.items():
            if kind[0] in "dolt" and _extra_name(path) not in (None, path):
                self._add(path, _Below(path))

    def _add(self, path: str, value: Any) -> None:
        outer = path.rpartition(".")[0]
        while self._kinds.get(outer, "x")[0] not in "dolt":
            outer = outer.rpartition(".")[0]
        self._members.setdefault(outer, {})[path[len(outer) + 1 :]] = value

    def made(self, path: str) -> Any:
        kind, members = self._kinds[path], self._members.get(path, {})
        values = {key: self.made(value.path) if isinstance(value, _Below) else value for key, value in members.items()}
        if kind[0] in "lt":
            items = [values[str(i)] for i in range(len(values))]
            return tuple(items) if kind[0] == "t" else items
        made = {int(key) if kind.endswith("i") else key: value for key, value in values.items()}
        return OrderedDict(made) if kind[0] == "o" else made


class _Below(NamedTuple):
    """A container in another one."""

    path: str


def _nested(key: str, entries: Mapping[str, Any]) -> Any:
    """Returns dicts and lists of names that state_of() allows."""
    return listed(tree((name[len(key) + 1 :], value) for name, value in entries.items()))


def _versions_of(file: File) -> dict[str, Any] | None:
    """Returns the attribute _metadata that a file of PyTorch has of its state_dict."""
    metadata: dict[str, Any] | None = json.loads(file._model.origin.get("pytorch.metadata", "{}")).get("")
    return metadata


class _Reading:
    """The reads of a load. After an error there are no more: load_state_dict() goes on after one."""

    def __init__(self, file: File, progress: Progress | None, total: int) -> None:
        self.file = file
        self.error: Exception | None = None
        self._progress = progress
        self._total = total
        self._done = 0

    def read(self, tensor: Tensor) -> _torch.Tensor:
        """Returns a tensor, in memory of its own or in a private mapping."""
        read: _torch.Tensor = self._counted(tensor, lambda progress: tensor.torch())
        return read

    def read_into(self, tensor: Tensor, target: _torch.Tensor) -> None:
        """Reads straight into a tensor where that is possible."""

        def work(progress: Progress | None) -> Any:
            plain = type(target) in (_torch.Tensor, _torch.nn.Parameter) and DTYPES.get(target.dtype) == tensor.dtype_name
            direct = plain and can_be_read(target)
            if direct and target.device.type == "cpu":
                tensor.read_into(target, progress=progress)
            elif direct and target.device.type == "cuda" and devices.count(driver_kind()) > 0:
                self.file.read_into({tensor.name: target}, progress=_scaled(progress, tensor.nbytes))
            else:
                target.copy_(tensor.torch())
                return
            if _increment_version is not None and not target.is_inference():
                _increment_version(target)  # as Tensor.copy_() does, for backward() of a graph that has the tensor

        self._counted(tensor, work)

    def _counted(self, tensor: Tensor, work: Any) -> Any:
        if self.error is not None:
            raise self.error
        before = self._done
        try:
            result = work(None if self._progress is None else lambda done, _: self._tell(before + done))
            self._done = min(before + tensor.nbytes, self._total)
            if self._tell(self._done) is False:
                raise make("cancelled", "the progress callback stopped the operation", tensor.name, self.file.path or "")
        except Exception as error:
            self.error = error
            raise
        return result

    def _tell(self, done: int) -> bool | None:
        return None if self._progress is None else self._progress(min(done, self._total), self._total)


def _scaled(progress: Progress | None, size: int) -> Progress | None:
    """The bytes are counted a second time if they are verified first."""
    return None if progress is None else lambda done, total: progress(done * size // max(total, 1), size)


class _Lazy(_torch.Tensor):
    """A tensor of a file in a state dict. It is read when it is used; Tensor.copy_() from it reads straight into the other
    tensor, so that no second copy of the model is in memory."""

    _reading: _Reading
    _source: Tensor
    _real: _torch.Tensor | None
    is_meta = False  # type: ignore[assignment, misc, unused-ignore]

    @staticmethod
    def of(reading: _Reading, source: Tensor) -> _Lazy:
        known = type_of(source.dtype_name, source.shape)
        assert known is not None
        empty = _torch.empty(known[1], dtype=known[0], device="meta")
        lazy: _Lazy = _torch.Tensor._make_subclass(_Lazy, empty)
        lazy._reading, lazy._source, lazy._real = reading, source, None
        return lazy

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_SHAPES:
            with _WITHOUT_FUNCTION():
                return func(*args, **kwargs)
        if func is _torch.Tensor.copy_ and len(args) == 2 and isinstance(args[1], cls) and not isinstance(args[0], cls):
            target, lazy = args
            if lazy._real is None:
                lazy._reading.read_into(lazy._source, target)
                return target
        args, kwargs = _pytree.tree_map(_real, (args, kwargs))
        return func(*args, **kwargs)


_WITHOUT_FUNCTION: Any = getattr(_torch._C, "DisableTorchFunctionSubclass", None) or _torch._C.DisableTorchFunction
# They don't need the elements.
_OF_SHAPES = {
    *(getattr(_torch.Tensor, name).__get__ for name in ("shape", "dtype", "ndim")),
    *(getattr(_torch.Tensor, name) for name in ("size", "dim", "numel", "nelement", "__len__")),
}


def _real(entry: Any) -> Any:
    if not isinstance(entry, _Lazy):
        return entry
    if entry._real is None:
        entry._real = entry._reading.read(entry._source)  # kept: what is called may change it
    return entry._real


class _Leniency:
    """The names that the code of a module judges itself, in load_state_dict()."""

    def __init__(self, model: _torch.nn.Module) -> None:
        self._prefixes: set[str] = set()
        self._optional: set[str] = set()
        if type(model).load_state_dict is not _torch.nn.Module.load_state_dict:
            self._prefixes.add("")
        for path, module in model.named_modules(remove_duplicate=False):
            prefix = path + "." if path else ""
            code = getattr(module._load_from_state_dict, "__func__", None)
            if code is _NormBase._load_from_state_dict:
                self._optional.add(prefix + "num_batches_tracked")  # files of older versions lack it
            elif code is not _torch.nn.Module._load_from_state_dict:
                self._prefixes.add(prefix)
            if module._load_state_dict_pre_hooks:
                self._prefixes.add(prefix)

    def __contains__(self, name: str) -> bool:
        if name in self._optional or "" in self._prefixes:
            return True
        parts = name.split(".")
        return any(".".join(parts[:i]) + "." in self._prefixes for i in range(1, len(parts))) if self._prefixes else False


def _problems(
    model: _torch.nn.Module, state: Mapping[str, Any], file: File, extra: Mapping[str, Any], strict: bool, assign: bool
) -> list[str]:
    """Returns how a module and a file differ, before anything changes."""
    lenient, problems = _Leniency(model), []
    meta = [name for name, tensor in state.items() if name in file and isinstance(tensor, _torch.Tensor) and _is_meta(tensor)]
    if meta and not assign:
        names = ", ".join(meta[:3]) + (", ..." if len(meta) > 3 else "")
        problems.append(f"tensors of the module have no memory: {names}; pass assign=True")
    for name, tensor in state.items():
        if name not in file or name in lenient or not isinstance(tensor, _torch.Tensor) or _is_extra(name):
            continue
        found = file[name]
        if _torch.nn.parameter.is_lazy(tensor) or not tensor.shape and found.shape == (1,):  # of old versions
            continue
        if shape_of(tensor, name) != found.shape:
            problems.append(f"{name}: the file has the shape {list(found.shape)}, the module {list(shape_of(tensor, name))}")
    for name in file:
        if name in state and type_of(file[name].dtype_name, file[name].shape) is None:
            problems.append(f"{name}: torch has no dtype for {file[name].dtype_name}; pass dequantize=True")
    if strict:
        here = {name for name in file if _extra_name(name) is None} | set(extra)
        missing = [name for name in state if name not in here and name not in lenient]
        unexpected = [name for name in here if name not in state and name not in lenient]
        problems += ["missing: " + ", ".join(missing)] if missing else []
        problems += ["unexpected: " + ", ".join(sorted(unexpected))] if unexpected else []
    return problems


def _is_meta(tensor: _torch.Tensor) -> bool:
    return tensor.is_meta or type(tensor).__name__ == "FakeTensor"


def _assigned(
    model: _torch.nn.Module, file: File, names: list[str], device: Any, progress: Progress | None
) -> dict[str, _torch.Tensor]:
    """Returns tensors for load_state_dict(assign=True): one for the names of one tensor in the file, and one parameter
    for the names of one parameter of the module."""
    place = place_of(device) if device else None
    by_leaf: dict[int, _torch.Tensor] = {}
    if place is not None:
        for name, on_device in file.to_device(place, names, progress=progress).items():
            by_leaf.setdefault(file[name]._leaf, on_device.torch())
    else:
        for name in names:
            if file[name]._leaf not in by_leaf:
                tensor = file[name].torch(copy=True)
                by_leaf[file[name]._leaf] = tensor.to(device) if device else tensor
    tensors = {name: by_leaf[file[name]._leaf] for name in names}
    ties: dict[int, list[str]] = {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        if name in tensors:
            ties.setdefault(id(parameter), []).append(name)
    for tied in ties.values():
        first = tensors[tied[0]]
        if len(tied) > 1 and all(tensors[name] is first or _equal(tensors[name], first) for name in tied):
            parameter = _torch.nn.Parameter(first, requires_grad=parameters[tied[0]].requires_grad)
            tensors.update(dict.fromkeys(tied, parameter))
    return tensors


def _equal(a: _torch.Tensor, b: _torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return not a.numel() or _torch.equal(a.reshape(-1).view(_torch.uint8), b.reshape(-1).view(_torch.uint8))


def load(
    model: _torch.nn.Module,
    file: File,
    strict: bool,
    *,
    device: Any = None,
    assign: bool = False,
    progress: Progress | None = None,
    versions: Mapping[str, int] | None = None,
) -> tuple[list[str], list[str]]:
    """Loads a file by load_state_dict(); see stele.torch.load_model(). `versions`: of the module's parts, where the file
    was saved with them."""
    state, extra = model.state_dict(), _extra_of(file)
    problems = _problems(model, state, file, extra, strict, assign)
    if problems:
        raise RuntimeError(f"load_model: {type(model).__name__} and the file differ:\n  " + "\n  ".join(problems))
    others = [name for name in file if _extra_name(name) is None]
    names = [name for name in others if type_of(file[name].dtype_name, file[name].shape) is not None]
    reading = _Reading(file, progress, sum(file[name].nbytes for name in names if name in state))
    new: OrderedDict[str, Any] = OrderedDict()
    if assign:
        new.update(_assigned(model, file, names, device, progress))
    else:
        for name, tensor in state.items():
            if name in file and type(tensor) is _torch.Tensor:
                check_memory(tensor, name)
        new.update((name, _Lazy.of(reading, file[name])) for name in names)
    new.update(extra)
    metadata = _versions_of(file)
    if versions is not None:
        prefixes = [path for path, _ in model.named_modules(remove_duplicate=False)]
        metadata = {prefix: {"version": versions.get(prefix, 1)} for prefix in prefixes}
    if metadata is not None:
        new._metadata = metadata  # type: ignore[attr-defined]
    try:
        result = model.load_state_dict(new, strict=strict, **({"assign": True} if assign else {}))
    except RuntimeError as error:
        if reading.error is not None:
            raise reading.error from error
        raise
    missing, unexpected = result if result is not None else ([], [])
    return list(missing), [*unexpected, *(name for name in others if name not in new)]
