"""The functions that take files: each is the subcommand of `stele` of the same name, with the same options."""

from __future__ import annotations

import base64
import json
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from . import _stele
from ._errors import Error, Report, make
from ._file import File
from ._interrupt import interruptible
from ._options import dtype_name
from ._save import report_of

Path = Union[str, "os.PathLike[str]"]
Source = Union[Path, File]

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stele.forget_runs)


def run(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Runs the command with --json. Returns its exit status and the document. Ctrl+C ends it."""
    command = _stele.Run(["stele", words[0], "--json", "--quiet", *words[1:]])
    status, output = interruptible(lambda: command.run(True), command.interrupt)
    document = json.loads(output, object_hook=_object) if output else {}
    if "error" in document:
        raise error_of(document["error"])
    return status, document


def _object(entries: dict[str, Any]) -> Any:
    """Returns an object of a document; ``{"$str": base64}`` is a string that is not UTF-8."""
    if entries.keys() == {"$str"}:
        return base64.b64decode(entries["$str"]).decode("utf-8", "surrogateescape")
    return entries


def error_of(parts: dict[str, Any]) -> Error:
    """Returns the exception for the error of a document."""
    return make(**{**{"message": ""}, **parts})


# Flags whose names are not those of the arguments.
_FLAGS = {"outputs": "output", "shapes": "shape", "except_": "except"}
# Arguments that are paths of files to read and to write, and those that may be several.
_READ = {"names", "names_a", "names_b", "parameters", "mappings"}
_WRITTEN = {"target", "out"}
_DTYPES = {"precision", "void1", "void2"}
_SEVERAL = {"files", "deltas"}


def _path(function: str, name: str, value: Any) -> str:
    """Returns a path. Errors: TypeError, ValueError (an opened file that its path does not stand for)."""
    if isinstance(value, File) and name not in _WRITTEN:
        return value._as_path(function)
    try:
        return os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{function}: {name} must be a path, not {type(value).__name__}") from None


def _paths(function: str, name: str, value: Any) -> list[str]:
    several = name in _SEVERAL and isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return [_path(function, name, item) for item in (value if several else [value])]


def _texts(function: str, name: str, value: Any) -> list[str]:
    """Returns the values of an option, which may occur several times."""
    if name in _READ or name in _WRITTEN:
        return [_path(function, name, value)]
    if name == "shapes":
        return [f"{key}=" + ",".join("?" if n is None else str(n) for n in extents) for key, extents in value.items()]
    if name == "rename" and isinstance(value, Mapping):
        for text in value.values():
            if "=" in text:
                raise ValueError(f"{name}: a new name cannot have '=': {text!r}; transforms.rename has no such limit")
        return [f"{pattern}={text}" for pattern, text in value.items()]
    if name in _DTYPES:
        return [dtype_name(value)]
    items = value if isinstance(value, (list, tuple)) else [value]
    for item in items:
        if not isinstance(item, (str, bytes, os.PathLike, numbers.Real)):
            raise TypeError(f"{function}: {name} cannot be {type(item).__name__}")
    return [os.fsdecode(item) if isinstance(item, (bytes, os.PathLike)) else str(item) for item in items]


def _run(command: str, arguments: dict[str, Any], *places: str) -> dict[str, Any]:
    """Runs a subcommand with the arguments of a function, its locals(). Those that `places` names are the files."""
    words = [command]
    for name, value in arguments.items():
        if name in places or value is None or value is False or name == "threads" and value == 0:
            continue
        flag = "--" + _FLAGS.get(name, name).replace("_", "-")
        if value is True:
            words.append(flag)
            continue
        for text in _texts(command, name, value):
            if not text:
                raise ValueError(f"{command}: {name} is empty")
            words.append(f"{flag}={text}")
    for name in places:
        for file in _paths(command, name, arguments[name]):
            words.append(os.path.join(".", file) if file.startswith("-") else file)
    return run(words)[1]


def _report(command: str, arguments: dict[str, Any], *places: str) -> Report:
    """Runs a subcommand as :func:`_run`, and returns its report."""
    return report_of(_run(command, arguments, *places).get("rows", []))


def convert(
    source: Source,
    target: Path,
    *,
    to: str | None = None,
    precision: Any = None,
    quantize: int | str | None = None,
    only: str | Sequence[str] = (),
    except_: str | Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    transpose: str | Sequence[str] = (),
    adapt: str | None = None,
    weights: bool = False,
    checkpoint: bool = False,
    compress: bool = False,
    shard: str | int | None = None,
    to_tag: str | None = None,
    append: bool = False,
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    raw: bool = False,
    optimizer: str | None = None,
    parameters: Path | None = None,
    buffers: str | Sequence[str] = (),
    allow_loss: bool = False,
    allow_overflow: bool = False,
    no_clobber: bool = False,
    dry_run: bool = False,
    threads: int = 0,
) -> Report:
    """Writes a file in another format, precision or with other names, piece by piece: ``stele convert``.

    Args:
        rename: ``{regular expression: text}``: replaces each match in a name; ``\\1`` is a group.
        only, except_: patterns of names; ``*`` is any text.
        optimizer, parameters, buffers: of PyTorch checkpoints: the path of the optimizer; the names in the order of
            ``parameters()``, as a file; patterns of the tensors that are no parameters.
        raw: codes of quantized weights that are not decoded are numbers; a language model of the hub is written to
            GGUF under its own names, not for llama.cpp.
        The other arguments are those of :func:`stele.save`, :func:`stele.open` and the command.

    Returns:
        The report: what was lost, converted, quantized.
    """
    return _report("convert", locals(), "source", "target")


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`; true if the file is whole.

    Attributes:
        error: what is wrong, or None.
        damaged: ``[{"name", "range", "error"}]``: the tensors that cannot be read whole.
        unchecked: the parts that no checksum covers.
    """

    ok: bool
    format: str = ""
    error: Error | None = None
    damaged: list[dict[str, str]] = field(default_factory=list)
    unchecked: Report = field(default_factory=Report)

    def __bool__(self) -> bool:
        return self.ok


def verify(
    path: Source,
    *,
    names: Path | None = None,
    tag: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    threads: int = 0,
) -> Verification:
    """Reads every byte of a file and checks everything that can be checked: ``stele verify``."""
    verdict = _run("verify", locals(), "path")["files"][0]
    error = error_of(verdict["error"]) if "error" in verdict else None
    if error is not None and error.code in ("not_found", "io"):
        raise error
    return Verification(
        verdict["ok"], verdict.get("format", ""), error, verdict.get("damaged", []), report_of(verdict.get("unchecked", []))
    )


@dataclass(frozen=True)
class Difference:
    """A row of :func:`diff`: `kind` is "only in A", "only in B", "shape", "values", "dtype", ... `max_abs`, `max_rel`,
    `rms`: of the elements that both have; `differing` of `count` are beyond the tolerance; `first` is the first."""

    kind: str
    name: str
    a: str = ""
    b: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    rms: float | None = None
    differing: int | None = None
    count: int | None = None
    first: int | None = None


@dataclass(frozen=True)
class Differences:
    """The result of :func:`diff`; false if the files have no difference, for which ``equal`` is True."""

    equal: bool
    tensors: int
    equal_tensors: int
    rows: list[Difference]

    def __bool__(self) -> bool:
        return not self.equal


def diff(
    a: Source,
    b: Source,
    *,
    atol: float = 0,
    rtol: float = 0,
    ignore_dtype: bool = False,
    tensors: bool = False,
    only: str | Sequence[str] = (),
    names_a: Path | None = None,
    names_b: Path | None = None,
    tag_a: str | None = None,
    tag_b: str | None = None,
    part_a: str | None = None,
    part_b: str | None = None,
    threads: int = 0,
) -> Differences:
    """Compares two files, of any formats: tensors, values, metadata, ties: ``stele diff``."""
    document = _run("diff", {**locals(), "largest": 0}, "a", "b")
    return Differences(
        document["equal"], document["tensors"], document["equal_tensors"],
        [Difference(**row) for row in document["differences"]],
    )


def hash(  # noqa: A001
    path: Source,
    *,
    algorithm: str = "xxh3",
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    raw: bool = False,
    threads: int = 0,
) -> str:
    """Returns a digest of all tensors, which does not depend on the format: ``stele hash --total``.

    Args:
        algorithm: ``xxh3``, ``xxh64``, ``sha1`` or ``sha256``.
    """
    digest: str = _run("hash", {**locals(), "total": True}, "path")["files"][0]["digest"]
    return digest


def hashes(
    path: Source,
    *,
    algorithm: str = "xxh3",
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    raw: bool = False,
    threads: int = 0,
) -> dict[str, str]:
    """Returns the digest of each tensor: ``stele hash``."""
    return {row["name"]: row["digest"] for row in _run("hash", locals(), "path")["files"][0]["tensors"]}


def merge(
    files: Source | Iterable[Source], out: Path, *, to: str | None = None, overlay: bool = False, allow_loss: bool = False,
    threads: int = 0,
) -> Report:
    """Joins the tensors of several files in one: ``stele merge``. With `overlay`, later files replace tensors of
    earlier ones."""
    return _report("merge", locals(), "files")


def delta(old: Source, new: Source, out: Path, *, to: str | None = None, allow_loss: bool = False, threads: int = 0) -> Report:
    """Writes what changed between two versions of a model: ``stele delta``."""
    return _report("delta", locals(), "old", "new")


def apply(
    base: Source, deltas: Source | Iterable[Source], out: Path | None = None, *, to: str | None = None, in_place: bool = False,
    allow_loss: bool = False, threads: int = 0,
) -> Report:
    """Writes the version of a model that deltas give, or with `in_place` makes `base` this version: ``stele apply``.

    With `in_place` and no deltas, completes a change that was interrupted.
    """
    return _report("apply", locals(), "base", "deltas")


def compact(deltas: Iterable[Source], out: Path, *, to: str | None = None, threads: int = 0) -> Report:
    """Joins deltas that follow each other in one: ``stele compact``."""
    return _report("compact", locals(), "deltas")


def split(
    source: Source,
    out: Path,
    *,
    size: str | int | None = None,
    levels: int = 1,
    allow_loss: bool = False,
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    raw: bool = False,
    threads: int = 0,
) -> list[str]:
    """Writes the parts of a file as files of their own: ``stele split``. Returns their paths.

    Args:
        out: ``part.EXT``: the files are part.NAME.EXT, or part-1-of-N.EXT.
        size: the maximum of the tensors in a file, as ``"2GB"``; without it, each name's first `levels` make a part.
    """
    arguments = {**locals(), "levels": levels if size is None else None}
    return [row["file"] if isinstance(row, dict) else row for row in _run("split", arguments, "source", "out")["files"]]


def report(
    a: Source,
    b: Source | None = None,
    *,
    out: Path = "report.html",
    title: str | None = None,
    tensors: bool = False,
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    raw: bool = False,
    threads: int = 0,
) -> None:
    """Writes a page of HTML: sizes, histograms, and with `b` the differences: ``stele report``."""
    _run("report", locals(), *(("a",) if b is None else ("a", "b")))


def repair(
    source: Source,
    out: Path,
    *,
    allow_loss: bool = False,
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    void1: Any = None,
    void2: Any = None,
    raw: bool = False,
    threads: int = 0,
) -> dict[str, Any]:
    """Writes what is whole of a damaged file: ``stele repair``. Returns the document of ``--json``."""
    return _run("repair", locals(), "source", "out")


def import_onnx(
    source: Source,
    target: Path,
    *,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    outputs: str | Sequence[str] = (),
    mappings: Path | None = None,
    to: str | None = None,
    allow_loss: bool = False,
    dry_run: bool = False,
    no_clobber: bool = False,
) -> Report:
    """Writes the graph of an ONNX model for DL4J: ``stele import``.

    Args:
        shapes: ``{input: extents}``; None stays open.
        mappings: a file of mapping rules that go before the library's.
    """
    return _report("import", locals(), "source", "target")


def import_tensorflow(
    source: Source,
    target: Path,
    *,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    outputs: str | Sequence[str] = (),
    signature: str | None = None,
    mappings: Path | None = None,
    to: str | None = None,
    allow_loss: bool = False,
    dry_run: bool = False,
    no_clobber: bool = False,
) -> Report:
    """Writes the graph of a SavedModel or a frozen graph for DL4J, or as ONNX: ``stele import``."""
    return _report("import", locals(), "source", "target")


def export_onnx(
    source: Source, target: Path, *, opset: int = 17, tag: str | None = None, allow_loss: bool = False, dry_run: bool = False,
    no_clobber: bool = False,
) -> Report:
    """Writes a graph of DL4J as an ONNX model: ``stele import MODEL OUT.onnx``."""
    return _report("import", {**locals(), "to": "onnx"}, "source", "target")
