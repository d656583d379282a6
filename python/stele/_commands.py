"""The functions that take files: each is the subcommand of `stele` of the same name, with the same options."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from . import _stele
from ._errors import Error, Report, make
from ._file import interruptible
from ._save import report_of

Path = Union[str, "os.PathLike[str]"]


def run(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Runs the command with --json. Returns its exit status and the document. Ctrl+C ends it."""
    command = ["stele", words[0], "--json", "--quiet", *words[1:]]
    status, output = interruptible(lambda: _stele.run(command, True), _stele.interrupt)
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


def _words(command: str, places: Iterable[Path], options: dict[str, Any]) -> list[str]:
    words = [command]
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            text = os.fsdecode(item) if isinstance(item, (bytes, os.PathLike)) else str(item)
            if not text:
                raise ValueError(f"{command}: {name} is empty")
            words.append(f"{flag}={text}")
    for place in map(os.fsdecode, places):
        words.append(os.path.join(".", place) if place.startswith("-") else place)
    return words


def _list(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _rules(rename: Mapping[str, str] | None) -> list[str]:
    rules = rename or {}
    for text in rules.values():
        if "=" in text:
            raise ValueError(f"convert: a new name cannot have '=': {text!r}; transforms.rename has no such limit")
    return [f"{pattern}={text}" for pattern, text in rules.items()]


def _shapes(shapes: Mapping[str, Sequence[int | None]] | None) -> list[str]:
    return [
        f"{name}=" + ",".join("?" if extent is None else str(extent) for extent in extents)
        for name, extents in (shapes or {}).items()
    ]


def convert(
    source: Path,
    target: Path,
    *,
    to: str | None = None,
    precision: str | None = None,
    quantize: int | None = None,
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
        The other arguments are those of :func:`stele.save`, :func:`stele.open` and the command.

    Returns:
        The report: what was lost, converted, quantized.
    """
    options: dict[str, Any] = dict(
        to=to, precision=precision, quantize=quantize, only=_list(only), except_=_list(except_),
        rename=_rules(rename), transpose=_list(transpose), adapt=adapt,
        weights=weights, checkpoint=checkpoint, compress=compress, shard=shard, to_tag=to_tag, append=append, names=names,
        tag=tag, part=part, limit=limit, ignore_checksums=ignore_checksums, optimizer=optimizer, parameters=parameters,
        buffers=_list(buffers), allow_loss=allow_loss, allow_overflow=allow_overflow, no_clobber=no_clobber,
        dry_run=dry_run, threads=threads or None,
    )
    _, document = run(_words("convert", [source, target], options))
    return report_of(document.get("rows", []))


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
    path: Path,
    *,
    names: Path | None = None,
    tag: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    threads: int = 0,
) -> Verification:
    """Reads every byte of a file and checks everything that can be checked: ``stele verify``."""
    options = dict(names=names, tag=tag, limit=limit, ignore_checksums=ignore_checksums, threads=threads or None)
    _, document = run(_words("verify", [path], options))
    verdict = document["files"][0]
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
    """The result of :func:`diff`; ``equal`` is True if the files have no difference."""

    equal: bool
    tensors: int
    equal_tensors: int
    rows: list[Difference]


def diff(
    a: Path,
    b: Path,
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
    options: dict[str, Any] = dict(
        atol=atol, rtol=rtol, ignore_dtype=ignore_dtype, tensors=tensors, only=_list(only), names_a=names_a,
        names_b=names_b, tag_a=tag_a, tag_b=tag_b, part_a=part_a, part_b=part_b, threads=threads or None, largest=0,
    )
    _, document = run(_words("diff", [a, b], options))
    return Differences(
        document["equal"], document["tensors"], document["equal_tensors"],
        [Difference(**row) for row in document["differences"]],
    )


def hash(  # noqa: A001
    path: Path,
    *,
    algorithm: str = "xxh3",
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    threads: int = 0,
) -> str:
    """Returns a digest of all tensors, which does not depend on the format: ``stele hash --total``.

    Args:
        algorithm: ``xxh3``, ``xxh64``, ``sha1`` or ``sha256``.
    """
    options: dict[str, Any] = dict(
        algorithm=algorithm, total=True, names=names, tag=tag, part=part, limit=limit,
        ignore_checksums=ignore_checksums, threads=threads or None,
    )
    _, document = run(_words("hash", [path], options))
    digest: str = document["files"][0]["digest"]
    return digest


def hashes(
    path: Path,
    *,
    algorithm: str = "xxh3",
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    threads: int = 0,
) -> dict[str, str]:
    """Returns the digest of each tensor: ``stele hash``."""
    options: dict[str, Any] = dict(
        algorithm=algorithm, names=names, tag=tag, part=part, limit=limit, ignore_checksums=ignore_checksums,
        threads=threads or None,
    )
    _, document = run(_words("hash", [path], options))
    return {row["name"]: row["digest"] for row in document["files"][0]["tensors"]}


def merge(
    files: Path | Sequence[Path], out: Path, *, to: str | None = None, overlay: bool = False, allow_loss: bool = False,
    threads: int = 0,
) -> Report:
    """Joins the tensors of several files in one: ``stele merge``. With `overlay`, later files replace tensors of
    earlier ones."""
    options: dict[str, Any] = dict(to=to, overlay=overlay, allow_loss=allow_loss, out=out, threads=threads or None)
    places = [files] if isinstance(files, (str, bytes, os.PathLike)) else files
    _, document = run(_words("merge", places, options))
    return report_of(document.get("rows", []))


def split(
    source: Path,
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
    threads: int = 0,
) -> list[str]:
    """Writes the parts of a file as files of their own: ``stele split``. Returns their paths.

    Args:
        out: ``part.EXT``: the files are part.NAME.EXT, or part-1-of-N.EXT.
        size: the maximum of the tensors in a file, as ``"2GB"``; without it, each name's first `levels` make a part.
    """
    options: dict[str, Any] = dict(
        size=size, levels=levels if size is None else None, allow_loss=allow_loss, names=names, tag=tag, part=part,
        limit=limit, ignore_checksums=ignore_checksums, threads=threads or None,
    )
    _, document = run(_words("split", [source, out], options))
    return [row["file"] if isinstance(row, dict) else row for row in document["files"]]


def report(
    a: Path,
    b: Path | None = None,
    *,
    out: Path = "report.html",
    title: str | None = None,
    tensors: bool = False,
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    threads: int = 0,
) -> None:
    """Writes a page of HTML: sizes, histograms, and with `b` the differences: ``stele report``."""
    options: dict[str, Any] = dict(
        out=out, title=title, tensors=tensors, names=names, tag=tag, part=part, limit=limit,
        ignore_checksums=ignore_checksums, threads=threads or None,
    )
    run(_words("report", [a] if b is None else [a, b], options))


def repair(
    source: Path,
    out: Path,
    *,
    allow_loss: bool = False,
    names: Path | None = None,
    tag: str | None = None,
    part: str | None = None,
    limit: str | int | None = None,
    ignore_checksums: bool = False,
    threads: int = 0,
) -> dict[str, Any]:
    """Writes what is whole of a damaged file: ``stele repair``. Returns the document of ``--json``."""
    options: dict[str, Any] = dict(
        allow_loss=allow_loss, names=names, tag=tag, part=part, limit=limit, ignore_checksums=ignore_checksums,
        threads=threads or None,
    )
    _, document = run(_words("repair", [source, out], options))
    return document


def _import(source: Path, target: Path, options: dict[str, Any]) -> Report:
    _, document = run(_words("import", [source, target], options))
    return report_of(document.get("rows", []))


def import_onnx(
    source: Path,
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
    return _import(
        source, target,
        dict(shape=_shapes(shapes), output=_list(outputs), mappings=mappings, to=to, allow_loss=allow_loss,
             dry_run=dry_run, no_clobber=no_clobber),
    )


def import_tensorflow(
    source: Path,
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
    return _import(
        source, target,
        dict(shape=_shapes(shapes), output=_list(outputs), signature=signature, mappings=mappings, to=to,
             allow_loss=allow_loss, dry_run=dry_run, no_clobber=no_clobber),
    )


def export_onnx(
    source: Path, target: Path, *, opset: int = 17, tag: str | None = None, allow_loss: bool = False, dry_run: bool = False,
    no_clobber: bool = False,
) -> Report:
    """Writes a graph of DL4J as an ONNX model: ``stele import MODEL OUT.onnx``."""
    return _import(
        source, target, dict(opset=opset, tag=tag, allow_loss=allow_loss, dry_run=dry_run, no_clobber=no_clobber, to="onnx")
    )
