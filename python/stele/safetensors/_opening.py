"""A file in the format -> an opened file."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from .._errors import FormatError, NotFoundError
from .._file import File
from .._file import open as open_any
from ._arguments import path_of
from ._errors import error_of, translated

# Maximum length of a header in bytes: the format's.
_MAX_HEADER_BYTES = 100_000_000


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
    with translated(doing):
        try:
            file = open_any(source, parts=True)  # every tensor, as the package does
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
            raise error_of(f"{doing}: {problem} ({name})", error) from error
    if file.format != "safetensors":
        other = error_of(f"{doing}: expected the format safetensors, found {file.format} ({name}); use stele.open()")
        other.code, other.file, other.expected, other.found = "unsupported", name, "safetensors", file.format
        raise other
    return file


def open_path(filename: Any) -> File:
    """Opens a file by its path. Errors: FileNotFoundError, OSError, SafetensorError, TypeError."""
    path = path_of(filename)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        missing = NotFoundError(f"No such file or directory: {filename}")
        missing.code, missing.message, missing.file = "not_found", "No such file or directory", path
        raise missing from error
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "A folder is not a safetensors file; use stele.open()", path)
    return _open(path, "Error while deserializing header", path)


def open_bytes(data: Any) -> File:
    """Opens bytes, or another buffer. Errors: SafetensorError, TypeError."""
    return _open(memoryview(data).cast("B"), "Error while deserializing", "bytes")
