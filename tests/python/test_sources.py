"""What is opened besides paths: buffers and file objects."""

from __future__ import annotations

import io
import mmap
import tempfile
from array import array as python_array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, equal_bits

import stele


def mapped(data: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


@pytest.mark.parametrize("format", ["safetensors", "stele", "json.zst", "npz", "pytorch", "gguf", "flax"])
@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        mapped,
        io.BytesIO,
        lambda data: python_array("B", data),
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: memoryview(data).cast("B", (1, len(data))),
        lambda data: io.BufferedReader(io.BytesIO(data)),  # type: ignore[arg-type]
    ],
    ids=["bytes", "bytearray", "memoryview", "mmap", "BytesIO", "array", "numpy", "2-d", "BufferedReader"],
)
def test_buffers_and_file_objects_are_opened(format: str, make: Callable[[bytes], Any]) -> None:
    tensors = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.int8([1, 2, 3])}
    file = stele.open(make(stele.save(tensors, format=format)))
    assert file.path is None and file.format == format
    assert all(equal_bits(file[name].numpy(), array) for name, array in tensors.items())


def test_open_files_are_opened(path: Path) -> None:
    with open(path, "rb") as buffered, open(path, "rb", buffering=0) as raw, tempfile.SpooledTemporaryFile() as spooled:
        spooled.write(path.read_bytes())
        for source in (buffered, raw, spooled):
            source.seek(17)
            file = stele.open(source)
            assert all(equal_bits(file[name].numpy(), array) for name, array in DATA.items())


@pytest.mark.parametrize("offset", [0, 8, 4096, 4097])
@pytest.mark.parametrize("format", ["safetensors", "stele", "npz", "pytorch", "gguf"])
def test_a_part_of_a_file_is_opened(tmp_path: Path, format: str, offset: int) -> None:
    tensors = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.int8([1, 2, 3])}
    data = stele.save(tensors, format=format)
    larger = tmp_path / "larger"
    larger.write_bytes(b"#" * offset + data + b"#" * 50)
    with open(larger, "rb") as number:
        files = [
            stele.open(larger, offset=offset, length=len(data)),
            stele.open(number.fileno(), offset=offset, length=len(data)),
        ]
    for file in files:
        assert file.path is None and file.format == format
        assert all(equal_bits(file[name].numpy(), array) for name, array in tensors.items())
        changed = file["a"].numpy(writable=True)
        changed[0, 0] = 5
        assert file["a"].numpy()[0, 0] == 0
    assert larger.read_bytes() == b"#" * offset + data + b"#" * 50


def test_a_part_of_a_file_is_checked(tmp_path: Path) -> None:
    larger = tmp_path / "larger"
    larger.write_bytes(b"#" * 10 + stele.save({"a": np.zeros(3)}, format="safetensors"))
    assert list(stele.open(larger, offset=10)) == ["a"]
    with pytest.raises(stele.Error):
        stele.open(larger, offset=9)
    for part in ({"offset": 10_000}, {"length": 10_000}, {"offset": 1, "length": 2**63}):
        with pytest.raises(stele.Error, match="the file ends before the part does"):
            stele.open(larger, **part)
    for part in ({"offset": -1}, {"length": -1}):
        with pytest.raises(ValueError, match="not negative"):
            stele.open(larger, **part)
    with pytest.raises(TypeError):
        stele.open(larger.read_bytes(), offset=10)
    with pytest.raises(stele.NotFoundError):
        stele.open(tmp_path / "none", offset=10)
    with pytest.raises(stele.Error):
        stele.open(987_654, offset=0)


class Reading:
    """A file object with read() alone, which may return less than was asked for."""

    def __init__(self, data: bytes, at_most: int = 1 << 30) -> None:
        self._file, self._at_most = io.BytesIO(data), at_most

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> Any:
        return self._file.read(min(size, self._at_most))


class Filling(Reading):
    def readinto(self, memory: Any) -> Any:
        data = self.read(len(memory))
        memory[: len(data)] = data
        return len(data)


@pytest.mark.parametrize("kind", [Reading, Filling])
@pytest.mark.parametrize("at_most", [1 << 30, 100, 7])
def test_a_file_object_may_return_less_than_it_is_asked_for(kind: type[Reading], at_most: int) -> None:
    file = stele.open(kind(stele.save(DATA, format="safetensors"), at_most))
    assert all(equal_bits(file[name].numpy(), array) for name, array in DATA.items())


class Broken(Reading):
    """A file object whose read() returns `answer(data)` after the file is opened."""

    answer: Callable[[bytes], Any] | None = None

    def read(self, size: int = -1) -> Any:
        data = super().read(size)
        return data if self.answer is None else self.answer(data)


class BrokenFilling(Broken):
    def readinto(self, memory: Any) -> Any:
        return self.read(len(memory)) if self.answer else Filling.readinto(self, memory)  # type: ignore[arg-type]


def raises(error: BaseException) -> Callable[[bytes], Any]:
    def answer(data: bytes) -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (Broken, lambda data: b""),
        (Broken, lambda data: data + b"more"),
        (Broken, lambda data: "text"),
        (Broken, lambda data: None),
        (Broken, lambda data: 5),
        (BrokenFilling, lambda data: 0),
        (BrokenFilling, lambda data: -1),
        (BrokenFilling, lambda data: len(data) + 1),
        (BrokenFilling, lambda data: None),
        (BrokenFilling, lambda data: "x"),
        (BrokenFilling, lambda data: 2**70),
    ],
)
def test_a_file_object_that_returns_nonsense_is_an_error(kind: type[Broken], answer: Any) -> None:
    source = kind(stele.save(DATA, format="safetensors"))
    file = stele.open(source)
    source.answer = answer
    with pytest.raises(stele.Error) as error:
        file["a"].numpy()
    assert error.value.code in ("io", "truncated") and "Traceback" not in str(error.value)


def test_an_exception_of_a_file_object_is_the_cause() -> None:
    source = Broken(stele.save(DATA, format="safetensors"))
    file = stele.open(source)
    source.answer = raises(ConnectionError("no route"))
    with pytest.raises((stele.OperatingSystemError, ConnectionError), match="no route") as error:
        file["a"].numpy()
    assert isinstance(error.value, ConnectionError) or isinstance(error.value.__cause__, ConnectionError)
    assert "Traceback" not in str(error.value)


def test_ctrl_c_in_a_file_object_is_not_swallowed() -> None:
    source = Broken(stele.save(DATA, format="safetensors"))
    file = stele.open(source)
    source.answer = raises(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        file["a"].numpy()


class NoTell(Reading):
    def seek(self, offset: int, whence: int = 0) -> Any:
        super().seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class OddPosition(Reading):
    """Its seek() to the end, and tell(), return `position`."""

    def __init__(self, data: bytes, position: Any, tell: Any = 0) -> None:
        super().__init__(data)
        self.position, self.told = position, tell

    def seek(self, offset: int, whence: int = 0) -> Any:
        return self.position if whence == 2 else super().seek(offset, whence)

    def tell(self) -> Any:
        return self.told


@pytest.mark.parametrize(
    ("position", "told"), [("x", 0), (-1, 0), (1.5, 0), (2**70, 0), ([], 0), (b"", 0), (None, "x"), (None, None), (None, -1)]
)
def test_a_position_that_is_none_is_an_error_of_the_file_object(position: Any, told: Any) -> None:
    with pytest.raises(stele.OperatingSystemError, match=r"seek\(\) of the file object returned no position"):
        stele.open(OddPosition(stele.save(DATA, format="safetensors"), position, told))


def test_seek_need_not_return_the_position() -> None:
    """SpooledTemporaryFile of Python 3.10 returns None."""
    file = stele.open(NoTell(stele.save(DATA, format="safetensors")))
    assert equal_bits(file["a"].numpy(), DATA["a"])


@pytest.mark.parametrize("source", [3, None, 1.5, [b"x"], object()])
def test_a_source_that_is_none_is_a_type_error(source: Any) -> None:
    with pytest.raises(TypeError, match="not a path, a buffer or a file object"):
        stele.open(source)


def test_a_buffer_with_gaps_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        stele.open(memoryview(stele.save(DATA, format="safetensors"))[::2])
