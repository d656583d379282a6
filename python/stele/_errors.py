"""Errors and reports."""

from __future__ import annotations

import collections
import errno
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from . import _stele

__all__ = [
    "Error",
    "ExistsError",
    "FormatError",
    "KeyNotFoundError",
    "MemoryLimitError",
    "NotFoundError",
    "OperatingSystemError",
    "PermissionDeniedError",
    "Report",
    "Row",
    "TimedOutError",
]


class Row(NamedTuple):
    """A row of a report: what happened, to which name, with what detail."""

    what: str
    path: str
    detail: str


class Report(Sequence[Row]):
    """The result of a save, load or verification, name by name. Like other sequences, it is false if it has no rows, as
    that of a save which lost and converted nothing.

    ``what`` is one of ``applied``, ``converted``, ``missing``, ``unused``, ``mismatched``, ``tied``, ``copied``,
    ``lost``, ``overflowed``, ``quantized``, ``unchecked``, ``constant``, ``written``, ``kept``. ``str(report)`` has one
    line for each row, or "no rows".
    """

    def __init__(self, rows: Sequence[tuple[str, str, str]] = (), text: str = "") -> None:
        self._rows = [Row(*row) for row in rows]
        self._text = text

    def add(self, what: str, path: str, detail: str = "") -> None:
        """Adds a row."""
        row = Row(what, path, detail)
        self._rows.append(row)
        if self._text:
            self._text += f"\n{what}: {path}: {detail}"

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def count(self, what: object) -> int:
        """Returns the number of rows of a kind."""
        return sum(row.what == what for row in self._rows)

    def paths(self, what: str) -> list[str]:
        """Returns the paths of the rows of a kind."""
        return [row.path for row in self._rows if row.what == what]

    def __str__(self) -> str:
        if not self._rows:
            return "no rows"
        return self._text.rstrip("\n") or "\n".join(f"{r.what}: {r.path}" + (f": {r.detail}" if r.detail else "") for r in self._rows)

    def __repr__(self) -> str:
        counts = collections.Counter(row.what for row in self._rows)
        return "<stele.Report: " + (", ".join(f"{n} {what}" for what, n in counts.items()) or "no rows") + ">"


class Error(Exception):
    """A failure, with its place.

    Attributes:
        code: the kind, a name of the library's enumeration ``Errc``: ``"checksum"``, ``"truncated"``, ...
        message: one sentence.
        path: the name of the parameter, or "".
        file: the name of the file, or "".
        expected, found: what the library expected, and what it found; "" if that says nothing.
        offset: the offset in the file in bytes, or None.
        hint: a remedy, or "".
        report: the rows of a load up to its failure, or None.
    """

    code = ""
    message = ""
    path = ""
    file = ""
    expected = ""
    found = ""
    offset: int | None = None
    hint = ""
    report: Report | None = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = {"errno": self.errno, "filename": self.filename} if isinstance(self, OSError) else {}
        return (type(self), self.args, {**self.__dict__, **numbers})


class FormatError(Error, ValueError):
    """The content of a file, or an argument, is not what it should be."""


class NotFoundError(Error, FileNotFoundError):
    """A file does not exist."""


class KeyNotFoundError(Error, KeyError):
    """A name does not exist in a file. Its hint may be a similar name, which is looked for when it is asked for: many
    programs only catch the error."""

    _hint = ""
    _names: Iterable[str] = ()

    @property
    def hint(self) -> str:
        if self._names:
            import difflib

            names, self._names = self._names, ()
            similar = difflib.get_close_matches(self.path, itertools.islice(names, 2000), 1)
            if similar:
                self._hint = f"did you mean {similar[0]}?"
                self.args = (f"{self.args[0]}; {self._hint}",)
        return self._hint

    @hint.setter
    def hint(self, text: str) -> None:
        self._hint = text

    def __str__(self) -> str:
        self.hint  # completes the text
        return super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        self.hint
        return super().__reduce__()


class OperatingSystemError(Error, OSError):
    """The operating system failed. ``errno`` is its number, if there is one."""


class ExistsError(OperatingSystemError, FileExistsError):
    """A file exists already."""


class PermissionDeniedError(OperatingSystemError, PermissionError):
    """The operating system does not permit it."""


class TimedOutError(OperatingSystemError, TimeoutError):
    """A server or a device did not answer in time."""


class MemoryLimitError(Error, MemoryError):
    """There is not enough memory."""


_CLASSES: dict[str, type[Error]] = {
    "io": OperatingSystemError,
    "exists": ExistsError,
    "no_space": OperatingSystemError,
    "timed_out": TimedOutError,
    "not_found": KeyNotFoundError,
    "out_of_memory": MemoryLimitError,
    "cancelled": Error,
    "user_exception": Error,
}
_NUMBERS = {
    "exists": errno.EEXIST,
    "no_space": errno.ENOSPC,
    "not_found": errno.ENOENT,
    "timed_out": errno.ETIMEDOUT,
}
_BY_TEXT = {os.strerror(number): number for number in errno.errorcode}
_BY_NUMBER: dict[int, type[Error]] = {errno.EACCES: PermissionDeniedError, errno.EPERM: PermissionDeniedError}


def make(
    code: str,
    message: str,
    path: str = "",
    file: str = "",
    expected: str = "",
    found: str = "",
    hint: str = "",
    offset: int | None = None,
    report: Report | None = None,
) -> Error:
    """Returns the exception for an error of the library."""
    kind = _CLASSES.get(code, FormatError)
    if kind is KeyNotFoundError and not (path or expected or found):
        kind = NotFoundError
    # The library's message ends with the system's text: "cannot open: Permission denied".
    number = _BY_TEXT.get(message.rpartition(": ")[2]) if code == "io" else _NUMBERS.get(code)
    kind = _BY_NUMBER.get(number, kind) if number is not None else kind
    message, hint = spelled(message), _spelled_hint(hint)
    if message == "this build of stele opens no URLs":
        hint = (
            "open a local copy, such as that of huggingface_hub.hf_hub_download() or snapshot_download()"
            if file.startswith("hf://")
            else "open it with fsspec, and pass the file object"
        )
    expected, found = _stele.spelled(expected), _stele.spelled(found)
    comparison = ", ".join(f"{word} {part}" for word, part in (("expected", expected), ("found", found)) if part)
    text = ": ".join(part for part in (code, path, message, comparison) if part)
    if offset is not None:
        text += f" at byte {offset}"
    text += (f" ({file})" if file else "") + (f"; {hint}" if hint else "")
    error = kind(text)
    error.code, error.message, error.path, error.file = code, message or comparison or code.replace("_", " "), path, file
    error.expected, error.found, error.hint, error.offset, error.report = expected, found, hint, offset, report
    if isinstance(error, OSError):
        error.errno, error.filename = number, file or None
    return error


def missing(name: str, names: Iterable[str], file: str) -> Error:
    """Returns the error for a name that is not among those of a file."""
    error = make("not_found", "the file has no tensor of this name", name, file)
    assert isinstance(error, KeyNotFoundError)
    error._names = names
    return error


_OPTION = re.compile(r"\b[A-Z]\w*(?:Options|Rules|Limits)::([\w.]+)")


def spelled(text: str) -> str:
    """Replaces names of C++, and options of the command, by those of this module."""
    text = _OPTION.sub(r"\1", _stele.spelled(text))
    text = re.sub(r"\bsee stele (\w+) --help", r"see help(stele.\1)", text)
    text = text.replace("see stele --help", "see help(stele)")
    text = text.replace("see stele formats", "see stele.formats()")
    text = re.sub(r"\bpass --([a-z-]+) ([a-z]\w*)(?=[,;]|$)", r"set --\1='\2'", text)
    text = re.sub(r"\bpass --([a-z-]+)(?: [A-Z]+\b)?", r"set --\1", text)
    text = re.sub(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)", lambda option: option[1].replace("-", "_"), text)
    return text.replace("stele::", "stele.")


# The library's options that functions of this module have, too.
_PARAMETERS = {
    "allow_loss", "allow_overflow", "buffers", "format", "ignore_checksums", "mappings", "max_bytes", "optimizer",
    "outputs", "parameters", "part", "shapes", "signature",
}


def _spelled_hint(hint: str) -> str:
    """Returns a hint without names that only a C++ program can use; a file's names may have colons."""
    text = _stele.spelled(hint)
    if text.startswith("did you mean "):
        return text
    text = re.sub(
        r",? or (?:set|raise|pass|leave) " + _OPTION.pattern + r"[^,;]*",
        lambda clause: clause[0] if clause[1] in _PARAMETERS else "",
        text,
    )
    text = _OPTION.sub(lambda option: option[1] if option[1] in _PARAMETERS else option[0], text)
    text = spelled(text) if not _OPTION.search(text) else text
    return text if "::" not in text else "the C++ library has an option for this"
