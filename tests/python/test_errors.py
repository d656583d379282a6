"""Errors: their classes, attributes, texts and pickles."""

from __future__ import annotations

import copy
import errno
import inspect
import io
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, equal_bits

import stele
from stele import _errors


def error_of(work: Any) -> stele.Error:
    with pytest.raises(stele.Error) as error:
        work()
    return error.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    stele.save({"a": np.arange(100.0), "b": np.ones(3)}, tmp_path / "a.stele")
    return tmp_path / "a.stele"


def test_a_missing_file(tmp_path: Path) -> None:
    for work in (
        lambda: stele.open(tmp_path / "x.pt"),
        lambda: stele.verify(tmp_path / "x.pt"),
        lambda: stele.convert(tmp_path / "x.pt", tmp_path / "y.pt"),
        lambda: stele.hash(tmp_path / "x.pt"),
    ):
        error = error_of(work)
        assert isinstance(error, stele.NotFoundError) and isinstance(error, FileNotFoundError)
        assert (error.code, error.file, error.path, error.offset) == ("not_found", str(tmp_path / "x.pt"), "", None)
        assert isinstance(error, OSError)
        assert (error.errno, error.filename) == (errno.ENOENT, str(tmp_path / "x.pt"))
        assert str(error).startswith("not_found: ") and "x.pt" in str(error)


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    assert isinstance(error_of(lambda: stele.save({"a": np.ones(1)}, tmp_path / "x" / "a.pt")), FileNotFoundError)


def test_a_folder_that_cannot_be_written() -> None:
    assert isinstance(error_of(lambda: stele.save({"a": np.ones(1)}, "/proc/self/a.stele")), OSError)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EMFILE, errno.EIO, errno.EBUSY])
def test_errors_of_the_system_have_its_number(number: int) -> None:
    """By the system's own text, with which the library's message ends."""
    error = _errors.make("io", f"cannot open: {os.strerror(number)}", file="f")
    assert isinstance(error, stele.OperatingSystemError) and isinstance(error, type(OSError(number, "")))
    assert (error.errno, error.filename, error.code) == (number, "f", "io")
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error) and (other.errno, other.filename) == (number, "f")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.stele").write_bytes(stele.save({"a": np.ones(1)}, format="stele"))
    (tmp_path / "a.stele").chmod(0)
    place = str(tmp_path / "a.stele") if os.getuid() else "/proc/1/mem"  # root may read the first
    try:
        open(place, "rb").close()
    except OSError as error:
        if error.errno != errno.EACCES:
            pytest.skip("no such file")
    else:
        pytest.skip("this user may read everything")
    for work in (lambda: stele.open(place), lambda: stele.verify(place), lambda: stele.hash(place)):
        error = error_of(work)
        assert isinstance(error, PermissionError) and isinstance(error, stele.OperatingSystemError)
        assert (error.errno, error.filename) == (errno.EACCES, place)


def test_results_without_rows_are_false(path: Path) -> None:
    assert not stele.Report() and stele.Report([("lost", "a", "")])
    assert not stele.save({"a": np.ones(1)}, path.with_name("b.stele"))
    assert not stele.diff(path, path) and stele.diff(path, path.with_name("b.stele"))


def test_an_existing_file(path: Path) -> None:
    error = error_of(lambda: stele.save({"a": np.ones(1)}, path, overwrite=False))
    assert isinstance(error, stele.ExistsError) and isinstance(error, FileExistsError)
    assert (error.code, error.errno) == ("exists", errno.EEXIST)
    stele.save({"a": np.ones(1)}, path.with_suffix(".pt"))
    assert isinstance(
        error_of(lambda: stele.convert(path, path.with_suffix(".pt"), no_clobber=True)), stele.ExistsError
    )


def test_a_truncated_file(path: Path) -> None:
    data = path.read_bytes()
    error = error_of(lambda: stele.open(data[:-100]))
    assert isinstance(error, stele.FormatError) and isinstance(error, ValueError)
    assert error.code in ("truncated", "malformed", "checksum") and error.file == "memory"


def test_a_changed_element_is_found_by_its_checksum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(np.arange(100.0).tobytes())
    data[at + 80] ^= 1
    path.write_bytes(data)
    file = stele.open(path)
    for work in (
        lambda: file["a"].numpy(),
        lambda: file.numpy(),
        lambda: np.asarray(file["a"]),
        lambda: file["a"].numpy(copy=True),
        lambda: file["a"].numpy(writable=True),
        lambda: file["a"].read_into(np.empty(100)),
        lambda: stele.save(file, format="safetensors"),
        lambda: stele.convert(path, path.with_suffix(".pt")),
    ):
        error = error_of(work)
        assert isinstance(error, stele.FormatError)
        assert (error.code, error.path) == ("checksum", "a"), error
        assert error.file in (str(path), "") or error.file.endswith(".pt")
    assert equal_bits(file["b"].numpy(), np.ones(3))  # the other tensor is whole
    assert equal_bits(file["a"][11:], np.arange(11.0, 100.0))  # a part is not checked
    result = stele.verify(path)
    assert not result and not result.ok
    assert [row["name"] for row in result.damaged] == ["a"]


def test_offset_expected_and_found() -> None:
    import json
    import struct

    header = json.dumps({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
    error = error_of(lambda: stele.open(struct.pack("<Q", len(header)) + header + bytes(8)))
    assert isinstance(error, stele.FormatError) and error.path == "a"
    assert error.expected and error.found and error.offset is not None
    assert f"expected {error.expected}" in str(error) and f"found {error.found}" in str(error)
    assert f"at byte {error.offset}" in str(error)


def test_a_report_of_the_rows_of_an_error_is_a_report() -> None:
    error = _errors.make("shape", "m", report=stele.Report([("missing", "a", "d")]))
    assert error.report is not None and error.report[0] == ("missing", "a", "d") == stele.Row("missing", "a", "d")
    assert (
        error.report.count("missing") == 1
        and list(error.report)[0].path == "a"
        and str(error.report) == "missing: a: d"
    )
    assert str(stele.Report()) == "no rows" == str(stele.save({"a": np.ones(1)}, io.BytesIO(), format="stele"))
    assert len(stele.Report()) == 0 and repr(stele.Report()) == "<stele.Report: no rows>"


CODES = [
    "io",
    "exists",
    "no_space",
    "timed_out",
    "not_found",
    "out_of_memory",
    "cancelled",
    "checksum",
    "user_exception",
]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("path", ["", "layer.w"])
def test_an_error_can_be_pickled_and_copied(code: str, path: str) -> None:
    error = _errors.make(code, "m", path, "file", "e", "f", "h", 7, stele.Report([("missing", "a", "d")]))
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error) and str(other) == str(error)
        for name in ("code", "message", "path", "file", "expected", "found", "hint", "offset"):
            assert getattr(other, name) == getattr(error, name), name
        assert list(other.report) == list(error.report)  # type: ignore[arg-type]
        if isinstance(error, OSError):
            assert (other.errno, other.filename) == (error.errno, error.filename)


def test_every_error_is_a_stele_error_and_what_python_users_expect() -> None:
    expected = {
        stele.FormatError: ValueError,
        stele.NotFoundError: FileNotFoundError,
        stele.KeyNotFoundError: KeyError,
        stele.OperatingSystemError: OSError,
        stele.PermissionDeniedError: PermissionError,
        stele.TimedOutError: TimeoutError,
        stele.ExistsError: FileExistsError,
        stele.MemoryLimitError: MemoryError,
    }
    for kind, builtin in expected.items():
        assert issubclass(kind, stele.Error) and issubclass(kind, builtin)
        assert str(kind("text")) == "text" and str(kind()) == ""
    for code in CODES:
        assert isinstance(_errors.make(code, "m"), stele.Error)


@pytest.mark.parametrize(("url", "advice"), [("hf://o/m", "huggingface_hub"), ("s3://b/a.stele", "fsspec"), ("https://x/a", "fsspec")])
def test_a_url_in_a_build_without_them_has_a_hint(url: str, advice: str) -> None:
    """With the words of src/io/urls.cpp; the wheels are such builds."""
    words = re.search(r'unsupported, "([^"]*URL[^"]*)".*?hint\("([^"]*)"\)', (ROOT / "src/io/urls.cpp").read_text(), re.DOTALL)
    assert words is not None
    for hint in (words[2], "build the command with libcurl"):
        error = _errors.make("unsupported", words[1], file=url, hint=hint)
        assert error.message == "this build of stele opens no URLs" and advice in error.hint and "C++" not in str(error)


def test_a_file_object_of_fsspec_is_read_in_part(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    with memory.open("/model.safetensors", "wb") as target:
        stele.save({"a": np.arange(1000.0)}, target, format="safetensors")
    with memory.open("/model.safetensors", "rb") as source:
        assert stele.open(source)["a"][3:5].tolist() == [3, 4]


def hints_of_the_library() -> list[str]:
    """Returns the string constants in the sources that name an option."""
    texts = set()
    folders = (
        "src",
        "recorders",
        "checkpoints",
        "precision",
        "encodings",
        "transforms",
        "training",
        "graph",
        "ir",
        "dl4j",
        "tools/stele",
        "include",
    )
    for folder in folders:
        for file in (ROOT / folder).rglob("*.[ch]pp"):
            if file.name != "terminal.cpp":
                for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', file.read_text()):
                    if re.search(r"\b(?:set|pass|raise|see|with|or) \w*(?:::|--|stele )|Options::|Rules::", text):
                        texts.add(text.encode().decode("unicode_escape"))
    return sorted(texts)


def parameters() -> set[str]:
    public = [stele.CheckpointManager, *(getattr(stele, name) for name in stele.__all__)]
    functions = [value for value in public if inspect.isfunction(value) or value is stele.CheckpointManager]
    return {name for function in functions for name in inspect.signature(function).parameters}


def test_hints_name_parameters_of_python() -> None:
    hints = hints_of_the_library()
    if not hints:
        pytest.skip("the sources of the library are missing")
    assert len(hints) > 40
    known = parameters() | {"help", "allow_overflow"}
    for hint in hints:
        text = _errors._spelled_hint(hint)
        assert "::" not in text and ".hpp" not in text and not re.search(r"(^|\s)--[a-z]", text), (hint, text)
        for word in re.findall(r"(?:^|[;,] |or )(?:set|pass|raise) ([a-z_]+)\b(?!\.)", text):
            assert word in known, (hint, text)
    for hint in ("set SaveOptions::allow_loss", "pass --allow-loss to leave it out"):
        assert _errors._spelled_hint(hint).startswith("set allow_loss")
    assert _errors.spelled("see stele convert --help") == "see help(stele.convert)"
    assert _errors._spelled_hint("did you mean a::b?") == "did you mean a::b?"


def test_messages_are_spelled_for_python(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(b"\x0a\x10" + bytes(100))
    stele.save({"x": np.ones(2, np.float32)}, tmp_path / "p.pdiparams")
    stele.save({"x": np.ones(2, np.float32)}, tmp_path / "a.stele")
    works: list[Any] = [
        lambda: stele.open(tmp_path / "a.pb"),
        lambda: stele.open(b""),
        lambda: stele.open(tmp_path),
        lambda: stele.open(tmp_path / "p.pdiparams"),
        lambda: stele.open(b"1234"),
        lambda: stele.save({"a": 1}, tmp_path / "a.npy"),
        lambda: stele.save({"a": np.ones(1)}, tmp_path / "a.word"),
        lambda: stele.save({"a": np.float32([1e30])}, format="stele", precision="f16"),
        lambda: stele.convert(tmp_path / "a.stele", tmp_path / "b.stele", quantize=99),
        lambda: stele.convert(tmp_path / "a.stele", tmp_path / "b.stele", adapt="word"),
        lambda: stele.convert(tmp_path / "a.stele", tmp_path / "b.stele", only="word"),
        lambda: stele.convert(tmp_path / "p.pdiparams", tmp_path / "b.stele"),
        lambda: stele.hash(tmp_path / "a.stele", algorithm="word"),
        lambda: stele.transforms.filter(stele.open(tmp_path / "a.stele"), "word"),
        lambda: stele.transforms.rename(stele.open(tmp_path / "a.stele"), {"(": ""}),
        lambda: stele.import_onnx(tmp_path / "a.stele", tmp_path / "b.fb"),
    ]
    for number, work in enumerate(works):
        error = error_of(work)
        text = str(error)
        assert "::" not in text and ".hpp" not in text, (number, text)
        assert not re.search(r"(^|\s)--", text) and " -- " not in text, (number, text)
        assert error.code and error.message, (number, text)
        assert "Traceback" not in text


def test_every_error_has_a_message(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"metadata": {}, "weight_map": 3}')
    with pytest.raises(stele.Error) as error:
        stele.open(path)
    assert error.value.message.startswith("expected ") and str(error.value).count("expected ") == 1
