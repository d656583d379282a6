"""Errors of this package, which are those of safetensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .._errors import Error, FormatError, MemoryLimitError, NotFoundError, OperatingSystemError


class SafetensorError(FormatError):
    """The content of a file, a name or an argument is not what it should be.

    Has the attributes of :class:`stele.Error`: ``code``, ``path``, ``file``, ``offset``, ``expected``, ``found``,
    ``hint``.
    """


class _SavingError(SafetensorError, OperatingSystemError):
    """The operating system failed during a save: a SafetensorError, as in safetensors, and an OSError."""


class _NoFolderError(SafetensorError, NotFoundError):
    """The folder to save to does not exist."""


def error_of(text: str, cause: Error | None = None, kind: type[SafetensorError] = SafetensorError) -> SafetensorError:
    """Returns an error with the attributes of `cause`."""
    error = kind(text)
    error.message = text
    if cause is not None:
        for name in ("code", "message", "path", "file", "expected", "found", "offset", "hint"):
            setattr(error, name, getattr(cause, name))
    return error


@contextlib.contextmanager
def translated(doing: str, *, saving: bool = False) -> Iterator[None]:
    """Raises errors of the library as those of safetensors. Errors of the system stay OSError."""
    try:
        yield
    except SafetensorError:
        raise
    except (OperatingSystemError, NotFoundError) as error:
        if not saving:
            raise
        kind = _NoFolderError if isinstance(error, NotFoundError) else _SavingError
        raise error_of(f"{doing}: I/O error: {error}", error, kind) from error
    except MemoryLimitError:
        raise
    except Error as error:
        raise error_of(f"{doing}: {error}", error) from error
