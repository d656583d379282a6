"""Options and paths in the types that _stele expects."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy as np

from . import _dtypes

_FLAGS = {
    "append", "compress", "parts", "raw", "allow_loss", "allow_overflow", "overwrite", "dry_run", "ignore_checksums",
}
_PATHS = {"names", "parameters"}
_NUMBERS = {"threads"}
_SIZES = {"limit", "shard"}


def file_name(path: str) -> str:
    """Returns a path for _stele, for which "-" is the standard input or output."""
    return os.path.join(".", path) if path == "-" else path


def dtype_name(value: Any) -> str:
    """Returns the library's name of a dtype: its own, or that of NumPy or torch, or a dtype of theirs; another str as it is.

    Raises:
        TypeError: not a dtype.
    """
    name = str(value)
    if not isinstance(value, str):
        name = name[6:] if name.startswith("torch.") else np.dtype(value).name
    return _dtypes.NAMES.get(name, name)


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
