"""Damaged and hostile files: a stele.Error or a result, never a crash, and never much memory."""

from __future__ import annotations

import io
import json
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORMATS, NEEDS_LAYOUT, SHARED, TEST_DATA, run_python, sample

import stele

FOLDERS = ("paddle-folder", "nnef", "safetensors-sharded", "hub", "zarr")

# Opens a file and uses everything; a failure must be a stele.Error. Prints the label first, in case of a crash.
READ = """
import faulthandler, json, os, resource, sys
faulthandler.enable()
import numpy as np, stele
if "asan" not in os.environ.get("LD_PRELOAD", ""):
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
opened = failed = 0

def use(source, label):
    global opened, failed
    print(label, flush=True)
    try:
        file = stele.open(source)
        file.tree, dict(file.values), file.metadata, file.properties, file._repr_html_(), repr(file)
        if isinstance(source, str):
            file.checkpoint
        for tensor in file.values():
            tensor.annotations
            if tensor.shape and tensor.nbytes < 1 << 20:
                try:
                    tensor[0], tensor[..., ::-1]
                except (TypeError, IndexError):
                    assert tensor.dtype_name.startswith(("q", "iq", "string", "opaque")) or 0 in tensor.shape, tensor
        arrays = file.numpy()
        opened += 1
    except stele.Error as error:
        assert error.code and str(error).startswith(error.code) and "::" not in error.hint, error
        failed += 1
"""

MUTATE = (
    READ
    + """
import random
path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = sorted(os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files)
target = os.path.join(path, sys.argv[4])
single = len(names) == 1
generator = random.Random(seed)
wholes = {name: open(name, "rb").read() for name in names}
for round in range(count):
    name = generator.choice(names)
    data = bytearray(wholes[name])
    kind = generator.choice(["cut", "flip", "byte", "insert", "zero", "swap"])
    at = generator.randrange(len(data) + 1)
    if generator.random() < 0.5:  # near the beginning
        at = min(len(data), int(generator.expovariate(1 / 60)))
    if kind == "cut":
        del data[at:]
    elif kind == "flip" and at < len(data):
        data[at] ^= 1 << generator.randrange(8)
    elif kind == "byte" and at < len(data):
        data[at] = generator.choice([0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)])
    elif kind == "insert":
        data[at:at] = generator.randbytes(generator.choice([1, 4, 8]))
    elif kind == "zero":
        data[at : at + 8] = bytes(len(data[at : at + 8]))
    elif kind == "swap":
        large = [b"\\xff" * 8, (1 << 62).to_bytes(8, "little"), (1 << 31).to_bytes(8, "big")]
        data[at : at + 8] = generator.choice(large)
    if single and generator.random() < 0.7:
        use(bytes(data), f"{round} {kind} {at}")
    else:
        with open(name, "wb") as file:
            file.write(data)
        use(target, f"{round} {kind} {at} {name}")
        with open(name, "wb") as file:
            file.write(wholes[name])
print("done", opened, failed)
"""
)


def tensors() -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "enc.0.w": sample("f32", (4, 8)),
        "enc.1.w": sample("i32", (3, 5)),
        "dec.b": sample("f16", (6, 2)),
    }
    return arrays


def damaged(format: str, folder: Path, count: int, seed: int) -> str:
    """Reads `count` damaged files of a format. Returns the last line: done, number opened, number failed."""
    name = "model" + FORMATS[format]
    values = tensors()
    options: dict[str, Any] = {}
    if format in ("npy", "nnef-tensor"):
        values = {"a": values["enc.0.w"]}
    elif not format.startswith("nnef") and not format.startswith("paddle"):
        options = {"values": {"step": 3, "s": "text", "l": [1, 2.5]}, "metadata": {"k": "v"}}
    if format == "archive":
        options["optimizer"] = {"m": {"enc.0.w": sample("f32", (4, 8))}}
    stele.save(
        values,
        folder / name,
        format=format,
        allow_loss=True,
        compress=format == "stele",
        durability="process",
        **options,
    )
    return run_python(MUTATE, str(folder), str(count), str(seed), name, timeout=300).stdout.splitlines()[-1]


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in NEEDS_LAYOUT])
def test_damaged_files_are_errors_or_read(format: str, tmp_path: Path) -> None:
    last = damaged(format, tmp_path, 150, 1)
    assert last.startswith("done") and int(last.split()[2]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("format", [f for f in FORMATS if f not in NEEDS_LAYOUT])
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_damaged_files_are_errors_or_read(format: str, seed: int, tmp_path: Path) -> None:
    assert damaged(format, tmp_path, 5000, seed).startswith("done")


def test_every_truncation_of_small_files_is_an_error_or_read(tmp_path: Path) -> None:
    for format in ("safetensors", "gguf", "npy", "stele", "pytorch", "flax"):
        data = stele.save({"a": np.float32([1, 2, 3])}, format=format)
        (tmp_path / format).write_bytes(data)
    code = (
        READ
        + """
for format in sorted(os.listdir(sys.argv[1])):
    with open(os.path.join(sys.argv[1], format), "rb") as file:
        data = file.read()
    for size in range(len(data)):
        use(data[:size], f"{format} {size}")
print("done", opened, failed)
"""
    )
    assert run_python(code, str(tmp_path)).stdout.splitlines()[-1].startswith("done")


# --- written by hand: the checklist of hostile-input.md ---


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: Any = (2,), offsets: Any = (0, 8), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def zipped(entries: list[tuple[str, bytes]], **options: Any) -> bytes:
    memory = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(memory, "w", **options) as file:
        warnings.simplefilter("ignore")  # of duplicate names
        for name, data in entries:
            file.writestr(name, data)
    return memory.getvalue()


class Command:
    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch stele-was-here",)


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def gguf(body: bytes, tensors: int = 1, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + body


def gguf_tensor(dims: list[int], offset: int = 0, kind: int = 0, name: bytes = b"a") -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    return b"".join(compressor.compress(block) for _ in range(size >> 20)) + compressor.flush()


HOSTILE = {
    "empty": b"",
    "one byte": b"\x80",
    "header of 2^63": safetensors(b"{}", length=1 << 63),
    "header longer than the file": safetensors(b"{}", length=100),
    "overlap": safetensors({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
    "hole": safetensors({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)),
    "trailing": safetensors({"a": entry()}, bytes(9)),
    "short": safetensors({"a": entry()}, bytes(7)),
    "begin after end": safetensors({"a": entry(offsets=(8, 0))}, bytes(8)),
    "product wraps": safetensors({"a": entry((1 << 32, 1 << 32), (0, 0), "U8")}),
    "product wraps to the size": safetensors({"a": entry(((1 << 62) + 2,), (0, 8))}, bytes(8)),
    "negative extent": safetensors({"a": entry((-2,))}, bytes(8)),
    "float extent": safetensors(b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', bytes(8)),
    "extent above 64 bits": safetensors(
        b'{"a":{"dtype":"F32","shape":[18446744073709551618],"data_offsets":[0,8]}}', bytes(8)
    ),
    "unknown dtype": safetensors({"a": entry(dtype="F33")}, bytes(8)),
    "dtype is a list": safetensors({"a": entry(dtype=["F32"])}, bytes(8)),
    "duplicate names": safetensors(b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2), bytes(8)),
    "depth bomb": safetensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep metadata": safetensors(b'{"__metadata__":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}"),
    "bad UTF-8 name": safetensors(b'{"\xff\xfe":%s}' % json.dumps(entry()).encode(), bytes(8)),
    "NUL name": safetensors({"a\0b": entry()}, bytes(8)),
    "lone surrogate": safetensors(b'{"\\ud800":%s}' % json.dumps(entry()).encode(), bytes(8)),
    "deep name": safetensors({".".join("a" * 20_000): entry()}, bytes(8)),
    "many names": safetensors({f"{i}": entry(offsets=(0, 0), shape=(0,)) for i in range(50_000)}),
    "JSON depth bomb": b"[" * 1_000_000,
    "JSON object depth bomb": b'{"a":' * 500_000,
    "burn JSON": b'{"metadata":{"float":"f32"},"item":' + b"[" * 100_000,
    "gguf count": gguf(b"", tensors=1 << 62),
    "gguf pairs": gguf(b"", pairs=1 << 62),
    "gguf dims wrap": gguf(gguf_tensor([1 << 32, 1 << 32]) + bytes(64)),
    "gguf size wraps": gguf(gguf_tensor([(1 << 62) - 1]) + bytes(64)),
    "gguf rank": gguf(struct.pack("<Q1sI", 1, b"a", 1 << 31)),
    "gguf type": gguf(gguf_tensor([4], kind=0x80000001) + bytes(64)),
    "gguf offset": gguf(gguf_tensor([4], offset=(1 << 64) - 32) + bytes(64)),
    "gguf name length": gguf(struct.pack("<Q", (1 << 64) - 1)),
    "gguf nested arrays": gguf(
        struct.pack("<Q1sI", 1, b"k", 9) + struct.pack("<IQ", 9, 1) * 50_000, tensors=0, pairs=1
    ),
    "gguf big-endian": b"GGUF\0\0\0\3" + bytes(16),
    "gguf zero alignment": gguf(
        struct.pack("<Q17sII", 17, b"general.alignment", 4, 0) + gguf_tensor([4]) + bytes(64), pairs=1
    ),
    "npy object": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps([Command()])),
    "npy huge": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }"),
    "npy code": npy(
        "{'descr': __import__('os').system('touch stele-was-here'), 'fortran_order': False, 'shape': (1,), }"
    ),
    "npy deep": npy("(" * 20_000),
    "npz object": zipped(
        [("a.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps([Command()])))]
    ),
    "npz duplicates": zipped([("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }"))] * 2),
    "npz bomb": zipped(
        [("a.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1073741824,), }") + bytes(1 << 26))],
        compression=zipfile.ZIP_DEFLATED,
    ),
    "zip path": zipped([("../../etc/passwd", b"x"), ("/abs.npy", b"y"), ("c:\\x.npy", b"z")]),
    "zip of nothing": zipped([]),
    "pickle": pickle.dumps(Command(), protocol=2),
    "pytorch pickle": zipped([("archive/data.pkl", pickle.dumps(Command(), protocol=2)), ("archive/version", b"3\n")]),
    "pytorch deep pickle": zipped([("a/data.pkl", b"\x80\x02" + b"(" * 200_000 + b"."), ("a/version", b"3\n")]),
    "pytorch memo": zipped([("a/data.pkl", b"\x80\x02" + b"]" + b"2" * 200_000 + b"."), ("a/version", b"3\n")]),
    "gzip bomb": bomb(256 << 20),
    "zstd window": bytes.fromhex("28b52ffd00b8") + bytes(100),
    "msgpack array": b"\xdd\xff\xff\xff\xff",
    "msgpack map": b"\xdf\xff\xff\xff\xff\xa1a",
    "msgpack depth": b"\x81\xa1a" * 200_000,
    "msgpack bin": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "protobuf length": b"\x08\x0a\x3a\xff\xff\xff\xff\x0f",
    "protobuf varint": b"\x08" + b"\xff" * 20,
    "protobuf groups": b"\x0b" * 100_000,
    "flatbuffer": struct.pack("<I", 0xFFFFFFF0) + bytes(64),
    "burnpack": b"BURN" + b"\xff" * 60,
    "stele magic": b"\x93STELE\r\n" + bytes(120),
}


def test_hostile_files_are_errors_or_read_and_run_no_code(tmp_path: Path) -> None:
    for number, (name, data) in enumerate(HOSTILE.items()):
        (tmp_path / f"{number:03} {name.replace('/', ' ')}").write_bytes(data)
    (tmp_path / "work").mkdir()
    code = (
        READ
        + """
import time
os.chdir(os.path.join(sys.argv[1], "work"))
for name in sorted(os.listdir("..")):
    if name == "work":
        continue
    path = os.path.join("..", name)
    start = time.monotonic()
    with open(path, "rb") as file:
        use(file.read(), name)
    use(path, name)
    assert time.monotonic() - start < 10, name
assert os.listdir(".") == [], os.listdir(".")
print("done", opened, failed)
"""
    )
    last = run_python(code, str(tmp_path)).stdout.splitlines()[-1].split()
    assert last[0] == "done" and int(last[2]) > len(HOSTILE)


@pytest.mark.parametrize(
    "name",
    [
        "overlap",
        "hole",
        "trailing",
        "short",
        "begin after end",
        "product wraps",
        "negative extent",
        "duplicate names",
        "depth bomb",
        "gguf dims wrap",
        "gguf size wraps",
        "npy object",
        "npy huge",
        "msgpack array",
        "header of 2^63",
    ],
)
def test_a_hostile_file_is_a_format_error(name: str) -> None:
    with pytest.raises(stele.FormatError):
        stele.open(HOSTILE[name]).numpy()


@pytest.mark.parametrize("rank", [64, 65, 129, 1000])
def test_a_tensor_of_more_axes_than_an_array_can_have_is_an_error(rank: int, tmp_path: Path) -> None:
    """nanobind ends the process for more than 128 axes, and NumPy makes an array of objects for more than 64."""
    (tmp_path / "a.safetensors").write_bytes(safetensors({"a": entry([1] * rank, (0, 4))}, bytes(4)))
    code = """
import sys, stele
file = stele.open(sys.argv[1])
compressed = stele.open(stele.save(file, format="json.zst"))
for use in (lambda: file.numpy()["a"], lambda: file["a"].numpy(), lambda: file["a"][...], lambda: compressed["a"][...],
            lambda: compressed["a"].numpy(), lambda: file["a"].numpy(writable=True)):
    try:
        print(use().ndim, end=" ")
    except (stele.Error, ValueError):
        print("error", end=" ")
"""
    words = run_python(code, str(tmp_path / "a.safetensors")).stdout.split()
    assert words == ["64" if rank <= 64 else "error"] * 6


def test_a_bool_that_is_neither_0_nor_1_is_an_error_in_every_way_of_reading(tmp_path: Path) -> None:
    """Also a view of a mapped file is checked."""
    (tmp_path / "a.safetensors").write_bytes(safetensors({"a": entry((4,), (0, 4), "BOOL")}, b"\0\1\2\xff"))
    uses: list[Callable[[stele.File], Any]] = [
        lambda file: file["a"].numpy(copy=True),
        lambda file: file["a"].read_into(np.empty(4, bool)),
        lambda file: file["a"].numpy(),
        lambda file: file.numpy(),
    ]
    for source in (tmp_path / "a.safetensors", (tmp_path / "a.safetensors").read_bytes()):
        for use in uses:
            with pytest.raises(stele.FormatError) as error:
                use(stele.open(source))
            assert (error.value.code, error.value.path) == ("malformed", "a")


def test_files_of_the_corpora_are_errors_or_read(tmp_path: Path) -> None:
    corpora = [path for path in (TEST_DATA / "fuzz", SHARED / "fixtures") if path.exists()]
    code = (
        READ
        + """
for folder in sys.argv[1:]:
    for below, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(below, name)
            if os.path.getsize(path) < 1 << 22:
                use(path, path)
                with open(path, "rb") as file:
                    use(file.read(), path)
print("done", opened, failed)
"""
    )
    assert run_python(code, *map(str, corpora)).stdout.splitlines()[-1].startswith("done")


def test_the_other_functions_survive_damaged_files(tmp_path: Path) -> None:
    code = (
        READ
        + """
import random
generator = random.Random(5)
os.chdir(sys.argv[1])
stele.save({"a": np.arange(40.0), "b": np.ones((3, 3))}, "whole.stele")
for format in ("stele", "safetensors", "npz", "pytorch", "gguf"):
    whole = stele.save({"a": np.arange(40, dtype=np.float32), "b": np.ones((3, 3), np.float32)}, format=format)
    name = "x" + stele.formats()[format]
    for round in range(10):
        data = bytearray(whole)
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        with open(name, "wb") as file:
            file.write(data)
        print(format, round, flush=True)
        for work in (lambda: stele.verify(name), lambda: stele.convert(name, "y.stele"), lambda: stele.hash(name),
                     lambda: stele.diff(name, "whole.stele"), lambda: stele.repair(name, "z.stele"),
                     lambda: stele.merge([name, name], "m.stele", overlay=True), lambda: stele.split(name, "s.stele")):
            try:
                work()
            except stele.Error:
                pass
print("done")
"""
    )
    assert run_python(code, str(tmp_path)).stdout.splitlines()[-1] == "done"
