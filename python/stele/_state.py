"""State of a run as plain values of the library, from which it comes back as it was."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _dtypes

# A dict with this key stands for an object of Python that is no value of the library; the key's value is its kind.
_TAG = "__python__"
_DICTS = {"dict": dict, "OrderedDict": collections.OrderedDict, "Counter": collections.Counter}


def is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) or _dtypes.is_torch(value)


def encoded(value: Any, path: str, tensor: Callable[[Any], Any] | None = None) -> Any:
    """Returns a plain value for an object. `path` is for errors; `tensor` encodes tensors, by default with their elements.

    Raises:
        TypeError: an object of another class.
    """
    if value is None or isinstance(value, (bool, float, str, bytes)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else {_TAG: "int", "text": str(value)}
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return encoded(value.item(), path)
    if is_tensor(value):
        return (tensor or _with_elements)(value)
    if isinstance(value, (list, tuple)):
        items = [encoded(item, f"{path}.{i}", tensor) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {_TAG: "tuple", "items": items}
    if isinstance(value, Mapping):
        kind = type(value).__name__ if type(value) in _DICTS.values() else "dict"
        if kind != "Counter" and _TAG not in value and all(isinstance(key, str) for key in value):
            return {key: encoded(item, f"{path}.{key}", tensor) for key, item in value.items()}
        pairs = [[encoded(key, path, tensor), encoded(item, f"{path}.{key}", tensor)] for key, item in value.items()]
        return {_TAG: kind, "items": pairs}
    raise TypeError(
        f"{path}: not a value: {type(value).__name__}; values are None, bool, int, float, str, bytes, tensors, scalars of"
        " NumPy, and lists, tuples and dicts of them"
    )


def decoded(value: Any, tensor: Callable[[Any], Any] | None = None) -> Any:
    """Returns the object that encoded() made a plain value of. `tensor` decodes what encoded() got from its own."""
    if isinstance(value, list):
        return [decoded(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: decoded(item, tensor) for key, item in value.items()}
    if kind == "int":
        return int(value["text"])
    if kind == "tuple":
        return tuple(decoded(item, tensor) for item in value["items"])
    if kind in _DICTS:
        return _DICTS[kind]({decoded(key, tensor): decoded(item, tensor) for key, item in value["items"]})
    if kind in ("numpy", "torch"):
        return _from_elements(kind, value["file"])
    return value if tensor is None else tensor(value)


def _with_elements(value: Any) -> dict[str, Any]:
    from ._save import save

    return {_TAG: "torch" if _dtypes.is_torch(value) else "numpy", "file": save({"value": value}, format="stele")}


def _from_elements(kind: str, file: bytes) -> Any:
    from ._file import open

    tensor = open(file)["value"]
    return tensor.torch(copy=True) if kind == "torch" else tensor.numpy(copy=True)


def reference(kind: str, name: str) -> dict[str, Any]:
    """Returns the value that stands for a tensor that is stored elsewhere, for decoded()'s `tensor`."""
    return {_TAG: kind, "name": name}
