"""Models in every format: opened lazily, saved in one step, converted, checked and compared.

    >>> import stele
    >>> with stele.open("model.safetensors") as file:
    ...     weight = file["fc.weight"][:10]
    >>> stele.save({"fc.weight": weight}, "part.gguf")

The guide is docs/python.md of the project.
"""

from __future__ import annotations

import os
from typing import Any

from . import _load  # noqa: F401, I001: before all that import _stele
from . import _stele, devices, transforms
from ._commands import (
    Difference,
    Differences,
    Verification,
    apply,
    compact,
    convert,
    delta,
    diff,
    export_onnx,
    hash,  # noqa: A004
    hashes,
    import_onnx,
    import_tensorflow,
    merge,
    repair,
    report,
    split,
    verify,
)
from ._errors import (
    Error,
    ExistsError,
    FormatError,
    KeyNotFoundError,
    MemoryLimitError,
    NotFoundError,
    OperatingSystemError,
    PermissionDeniedError,
    Report,
    Row,
    TimedOutError,
    make,
)
from ._file import Checkpoint, File, open  # noqa: A004
from ._save import save
from ._stele import version as __version__
from ._tensor import Tensor
from .checkpoints import CheckpointManager

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "Difference",
    "Differences",
    "Error",
    "ExistsError",
    "File",
    "FormatError",
    "KeyNotFoundError",
    "MemoryLimitError",
    "NotFoundError",
    "OperatingSystemError",
    "PermissionDeniedError",
    "Report",
    "Row",
    "Tensor",
    "TimedOutError",
    "Verification",
    "__version__",
    "apply",
    "compact",
    "convert",
    "delta",
    "devices",
    "diff",
    "export_onnx",
    "formats",
    "hash",
    "hashes",
    "import_onnx",
    "import_tensorflow",
    "load_plugin",
    "merge",
    "open",
    "progress",
    "repair",
    "report",
    "save",
    "split",
    "transforms",
    "verify",
]


def formats() -> dict[str, str]:
    """Returns ``{name: extension}`` of the formats that :func:`save` writes."""
    return {name: extension for name, extension, writes in _stele.formats() if writes}


def load_plugin(path: str | os.PathLike[str]) -> None:
    """Loads a shared library with formats of its own, a plug-in: ``--plugin`` of the command. Its code runs in this
    process; load only files that you trust.

    Raises:
        NotFoundError: the system cannot load it.
        FormatError: it is no plug-in, or one for another version.
    """
    name = os.fsdecode(path)
    try:
        _stele.load_plugin(name)
    except KeyNotFoundError as error:  # the library's error has a path and no file
        raise make("not_found", f"{error.message}: {error.found}", file=name) from None


def progress(bar: Any) -> Any:
    """Returns a progress function for a bar of tqdm: an object with ``total`` and ``update(n)``."""
    seen = 0

    def function(done: int, total: int) -> None:
        nonlocal seen
        bar.total = total
        bar.update(done - seen)
        seen = done

    return function
