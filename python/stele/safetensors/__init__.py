"""A drop-in for safetensors 0.8.0: the same names, over this library's reader and writer.

    >>> from stele.safetensors import safe_open
    >>> from stele.safetensors.torch import load_file, save_file

A file that this module writes has the bytes that safetensors writes for the same tensors. docs/python.md lists the
differences.
"""

from __future__ import annotations

from ._errors import SafetensorError, _NoFolderError, _SavingError
from ._safe_open import PySafeSlice, _safe_open_handle, deserialize, safe_open
from ._saving import TensorSpec, serialize, serialize_file

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

# Tracebacks and pickles have the names of this package.
for _name in (
    SafetensorError, _NoFolderError, _SavingError,
    PySafeSlice, _safe_open_handle, deserialize, safe_open,
    TensorSpec, serialize, serialize_file,
):  # fmt: skip
    _name.__module__ = __name__
