"""Helpers of the tests of the Python package. `--slow` also runs the tests with the marker `slow`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

import stele
from stele import _dtypes

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "stele-hypothesis")
hypothesis.settings.register_profile(
    "stele",
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("stele")

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
sys.path.append(str(ROOT / "tools"))
import test_data  # noqa: E402

TEST_DATA = test_data.root()
FORMATS = stele.formats()
# AddressSanitizer needs much address space, and keeps freed memory.
ASAN = "asan" in os.environ.get("LD_PRELOAD", "")
# Formats that store one tensor, or tensors without names.
SINGLE = ("npy", "nnef-tensor")
NEEDS_LAYOUT = ("burn-bin", "burn-bin.gz")
DTYPES = [*_dtypes.NUMPY, *_dtypes.ML_DTYPES, *_dtypes.PACKED, *_dtypes.PACKED_6]
KINDS = ("F-ordered", "transposed", "strided", "reversed", "broadcast", "big-endian")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests with the marker slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes longer than a second; runs with --slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: runs with --slow"))


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh working directory."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the dtype of NumPy or ml_dtypes for a name of the library."""
    if dtype in _dtypes.NUMPY:
        return np.dtype(_dtypes.NUMPY[dtype])
    tables = {**_dtypes.ML_DTYPES, **_dtypes.PACKED, **_dtypes.PACKED_6}
    return np.dtype(getattr(ml_dtypes, tables[dtype]))


def sample(dtype: str, shape: tuple[int, ...] = (4, 6), seed: int = 0) -> np.ndarray[Any, Any]:
    """Returns an array of random bits, NaN and infinities included; of valid elements for bool and packed dtypes."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    target = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in _dtypes.PACKED:
        values = np.arange(-8, 8) if dtype == "i4" else np.arange(16)
        chosen = rng.choice(values, shape)
        return chosen.astype(np.uint8).view(target) if dtype == "f4_e2m1" else chosen.astype(target)
    if dtype in _dtypes.PACKED_6:
        return rng.integers(0, 64, shape).astype(np.uint8).view(target)
    count = int(np.prod(shape, dtype=int))
    return rng.integers(0, 256, count * target.itemsize).astype(np.uint8).view(target).reshape(shape)


DATA = {"a": np.arange(60, dtype=np.float32).reshape(3, 4, 5), "b": sample("bf16", (2, 3)), "c": np.int8([-1, 2, 3])}
WAYS = ["mapped", "bytes", "compressed", "json.zst", "npz", "file object"]


def opened(way: str, tensors: Mapping[str, Any], folder: Path) -> stele.File:
    """Saves tensors and opens them: mapped, in memory, or compressed."""
    if way == "mapped":
        stele.save(tensors, folder / "m.safetensors", durability="process")
        return stele.open(folder / "m.safetensors")
    if way == "npz":
        np.savez_compressed(folder / "n.npz", **tensors)
        return stele.open(folder / "n.npz")
    if way == "compressed":
        return stele.open(stele.save(tensors, format="stele", compress=True))
    if way == "file object":
        return stele.open(io.BytesIO(stele.save(tensors, format="safetensors")))
    return stele.open(stele.save(tensors, format=way if way in FORMATS else "safetensors"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    stele.save(DATA, tmp_path / "a.safetensors", metadata={"k": "v"}, values={"step": 3})
    return tmp_path / "a.safetensors"


def array_of_kind(kind: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array in one of the six memory orders; its elements are those of `array`, or some of them."""
    if kind == "F-ordered":
        return np.asfortranarray(array)
    if kind == "transposed":
        return array.T
    if kind == "strided":
        return np.repeat(np.repeat(array, 2, axis=0), 3, axis=1)[::2, ::3]
    if kind == "reversed":
        return array[::-1, ::-1]
    if kind == "broadcast":
        return np.broadcast_to(array[:1], array.shape)
    return array.byteswap().view(array.dtype.newbyteorder())


def equal_bits(found: Any, expected: Any) -> bool:
    """Returns True if two arrays have the same shape, dtype and elements, bit by bit, in any memory order."""
    found, expected = np.asarray(found), np.asarray(expected)
    same = found.shape == expected.shape and found.dtype.name == expected.dtype.name
    return same and _bits(found) == _bits(expected)


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    return (array if array.dtype.isnative else array.byteswap()).tobytes()


def protobuf(number: int, data: bytes | int) -> bytes:
    """Returns a field of a protobuf message."""

    def varint(value: int) -> bytes:
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def run_python(code: str, *arguments: str, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, which must succeed."""
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout[-200:]}\n{result.stderr[-3000:]}"
    return result
