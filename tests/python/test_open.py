"""Opened files: mappings, lazy tensors, parts, views, buffers and file objects."""

from __future__ import annotations

import copy
import gc
import http.server
import io
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import weakref
from array import array as python_array
from collections.abc import Callable, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORMATS, SHARED, TEST_DATA, equal_bits, numpy_dtype, run_python, sample
from hypothesis import given
from hypothesis import strategies as st

import stele

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


# --- the mapping ---


def test_a_file_is_a_mapping(path: Path) -> None:
    with stele.open(path) as file:
        assert isinstance(file, Mapping) and len(file) == 3 and bool(file)
        names = list(file)
        assert sorted(names) == ["a", "b", "c"] and list(file.keys()) == names
        assert [name for name, _ in file.items()] == names and dict(file).keys() == set(names)
        assert "a" in file and "z" not in file and 7 not in file
        assert file.get("z") is None and file.get("z", 5) == 5 and file.get("a") is file["a"]
        assert file["a"] is dict(file)["a"] and {**file}["a"] is file["a"]
        match file:
            case {"a": tensor}:
                assert tensor is file["a"]
            case _:
                raise AssertionError("a File matches a mapping pattern")
        with pytest.raises(TypeError):
            [] in file  # noqa: B015


def test_values_is_an_attribute_and_the_method_of_a_mapping(path: Path) -> None:
    file = stele.open(path)
    assert dict(file.values) == {"step": 3} and file.values["step"] == 3 and repr(file.values) == "{'step': 3}"
    assert isinstance(file.values(), ValuesView)
    assert {tensor.name for tensor in file.values()} == set(DATA)


def test_an_unknown_name_is_a_key_error_with_a_hint(path: Path) -> None:
    with pytest.raises(KeyError) as error:
        stele.open(path)["aa"]
    assert isinstance(error.value, stele.KeyNotFoundError)
    assert (error.value.code, error.value.path, error.value.file) == ("not_found", "aa", str(path))
    assert error.value.hint == "did you mean a?"


def test_a_missing_name_among_many_costs_little() -> None:
    file = stele.open(stele.save({f"layer.{i}.weight": np.float32([1]) for i in range(20_000)}, format="stele"))
    file.get("x")
    assert not any(file.get(f"layer.{i}.bias") for i in range(20_000))


def test_attributes_of_tensors(path: Path) -> None:
    file = stele.open(path)
    tensor = file["b"]
    assert (tensor.name, tensor.dtype, tensor.shape, tensor.nbytes) == ("b", "bf16", (2, 3), 12)
    assert (tensor.ndim, tensor.size, len(tensor), tensor.annotations) == (2, 6, 2, {})
    assert repr(tensor) == "<stele.Tensor 'b': bf16 [2, 3]>"
    assert file.nbytes == sum(array.nbytes for array in DATA.values())
    assert (file.format, file.metadata, file.properties, file.checkpoint) == ("safetensors", {"k": "v"}, None, None)
    assert str(path) in repr(file) and "3 tensors" in repr(file)
    with pytest.raises(TypeError, match="len"):
        len(stele.open(stele.save({"s": np.float32(1)}, format="stele"))["s"])


def test_gguf_has_typed_properties(tmp_path: Path) -> None:
    properties = {"general.name": "x", "a.count": 3, "a.flag": True, "a.list": [1, 2], "a.rate": 0.5}
    stele.save({"w": np.ones((2, 32), np.float32)}, tmp_path / "a.gguf", properties=properties)
    file = stele.open(tmp_path / "a.gguf")
    found = file.properties
    assert found["general.name"] == "x" and found["a.list"] == [1, 2] and found["a.rate"] == 0.5
    stele.save(file, tmp_path / "b.gguf", metadata={})
    assert stele.open(tmp_path / "b.gguf").properties == found


def test_the_tree_has_every_tensor_once(tmp_path: Path) -> None:
    one = np.float32([1])
    tensors = {"a.0": one, "a.2": one, "a.1": one, "b.1": one, "c": one, "c.d": one, "c..": one, "e.f.0.g": one}
    file = stele.open(stele.save(tensors, format="stele"))
    tree = file.tree
    assert isinstance(tree["a"], list) and isinstance(tree["b"], dict) and isinstance(tree["e"]["f"], list)
    assert [tensor.name for tensor in tree["a"]] == ["a.0", "a.1", "a.2"]
    assert sorted(leaves(tree)) == sorted(tensors)


@given(st.lists(st.text(alphabet="a0.\\e1", max_size=5), unique=True, max_size=8))
def test_the_tree_of_any_names_has_every_tensor_once(names: list[str]) -> None:
    file = stele.open(stele.save({name: np.float32([1]) for name in names}, format="stele"))
    assert list(file) == names
    assert sorted(leaves(file.tree)) == sorted(names)


def leaves(tree: Any) -> Iterator[str]:
    if isinstance(tree, stele.Tensor):
        yield tree.name
    else:
        for below in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(below)


def test_a_notebook_shows_a_table(path: Path, tmp_path: Path) -> None:
    file = stele.open(path)
    text = file._repr_html_()
    assert text.count("<tr>") == 4 and "a.safetensors" in text and "3 × 4 × 5" in text
    many = stele.open(stele.save({f"<b>{i}": np.ones(1) for i in range(60)}, format="stele"))
    text = many._repr_html_()
    assert "and 10 more" in text and "<b>1" not in text and "&lt;b&gt;1" in text and text.count("<tr>") == 52
    file.close()
    assert file._repr_html_() == "&lt;stele.File: closed&gt;"


# --- parts ---


def basic_index(shape: tuple[int, ...], draw: Callable[[Any], Any]) -> Any:
    parts: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        edge = st.none() | st.integers(-extent - 2, extent + 2)
        step = st.none() | st.integers(-3, 3).filter(bool)
        parts.append(draw(st.builds(slice, edge, edge, step) | st.integers(-extent - 1, extent).map(np.int64)))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), ...)
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
def test_a_part_equals_that_of_numpy(way: str, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=4)))
    dtype = data.draw(st.sampled_from(["f4", "i2", "c8", "u1", "?"]))
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    index = basic_index(shape, data.draw)
    tensor = opened(way, {"a": array}, tmp_path_factory.getbasetemp())["a"]
    try:
        expected = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            tensor[index]
        return
    found = tensor[index]
    assert type(found) is type(expected) and equal_bits(found, expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("index", [[0, 2], np.array([True, False, True]), None, (slice(None), [1, 1]), True], ids=str)
def test_other_indices_of_numpy_work_wherever_the_elements_are(way: str, index: Any, tmp_path: Path) -> None:
    tensor = opened(way, {"a": DATA["a"]}, tmp_path)["a"]
    assert equal_bits(tensor[index], DATA["a"][index])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("index", "error"),
    [
        (3, IndexError),
        ((0, 0, 0, 0), IndexError),
        ((..., ...), IndexError),
        (1.5, IndexError),
        (slice(0, 1.5), TypeError),
    ],
    ids=str,
)
def test_a_wrong_index_is_the_error_of_numpy(way: str, index: Any, error: type[Exception], tmp_path: Path) -> None:
    tensor = opened(way, {"a": DATA["a"]}, tmp_path)["a"]
    with pytest.raises(error):
        tensor[index]


def test_a_part_of_a_large_tensor_reads_only_its_box(tmp_path: Path) -> None:
    array = np.arange(1 << 20, dtype=np.int64).reshape(1024, 1024)
    stele.save({"a": array}, tmp_path / "a.stele", compress=True)
    reads: list[int] = []

    class Counting(io.FileIO):
        def readinto(self, memory: Any) -> int:
            reads.append(len(memory))
            return super().readinto(memory)  # type: ignore[return-value]

    file = stele.open(Counting(tmp_path / "a.stele"))
    reads.clear()
    assert equal_bits(file["a"][512:514, ::-7], array[512:514, ::-7])
    assert 0 < sum(reads) < (tmp_path / "a.stele").stat().st_size / 2


def test_iteration_and_containment_end() -> None:
    tensor = stele.open(stele.save({"a": np.float32([1, 2])}, format="json.zst"))["a"]
    assert [float(x) for x in tensor] == [1.0, 2.0] and 2.0 in tensor and 3.0 not in tensor


# --- arrays ---


def test_an_array_of_a_mapped_file_is_a_read_only_view(path: Path) -> None:
    file = stele.open(path)
    array = file["a"].numpy()
    assert not array.flags.writeable and not array.flags.owndata and array.base is not None
    assert np.shares_memory(array, file["a"].numpy()) and np.shares_memory(array, file["a"][1:])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert np.shares_memory(file["b"].numpy(), file.numpy()["b"])  # a dtype of ml_dtypes, too


def test_a_writable_array_is_private(path: Path) -> None:
    before = path.read_bytes()
    file = stele.open(path)
    first, second = file["a"].numpy(writable=True), file["a"].numpy(writable=True)
    first[:] = 7
    file.numpy(writable=True)["c"][:] = 9
    assert (first == 7).all()
    for other in (second, file["a"].numpy(), file["a"].numpy(copy=True), file["a"][...], stele.open(path)["a"].numpy()):
        assert equal_bits(other, DATA["a"])
    assert equal_bits(file["c"].numpy(), DATA["c"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_and_a_writable_array_can_be_changed(way: str, tmp_path: Path) -> None:
    file = opened(way, {name: array for name, array in DATA.items() if name != "b"}, tmp_path)
    for array in (file["a"].numpy(copy=True), file["a"].numpy(writable=True), *file.numpy(writable=True).values()):
        assert array.flags.writeable
        array[...] = 1
    assert equal_bits(file["a"].numpy(), DATA["a"]) and equal_bits(file["c"].numpy(), DATA["c"])


def test_arrays_outlive_their_file(path: Path) -> None:
    file = stele.open(path)
    arrays = [
        file["a"].numpy(),
        file["a"].numpy(writable=True),
        file["a"][1:],
        file.numpy()["a"],
        np.asarray(file["a"]),
    ]
    file.close()
    del file
    gc.collect()
    path.unlink()
    assert all(equal_bits(array, DATA["a"][-len(array) :]) for array in arrays)


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_an_array_keeps_the_mapping_of_its_file_and_no_longer(path: Path) -> None:
    file = stele.open(path)
    model, reader = weakref.ref(file._model), file["a"].numpy()[1:]
    private = file.numpy(writable=True)["a"]
    del file
    gc.collect()
    assert model() is None and is_mapped(path)
    del reader
    gc.collect()
    assert is_mapped(path)
    del private
    gc.collect()
    assert not is_mapped(path)


@pytest.mark.slow
def test_more_writable_arrays_than_a_process_may_have_mappings(tmp_path: Path) -> None:
    count = 70_000  # vm.max_map_count is 65,530
    stele.save({str(i): np.float32([i]) for i in range(count)}, tmp_path / "a.safetensors", durability="process")
    file = stele.open(tmp_path / "a.safetensors")
    arrays = [tensor.numpy(writable=True) for tensor in file.values()]
    assert all(array[0] == i for i, array in zip(map(int, file), arrays, strict=True))


@pytest.mark.parametrize("way", ["bytes", "bytearray", "memoryview"])
def test_an_array_of_a_buffer_keeps_the_buffer_and_no_longer(way: str) -> None:
    class Buffer(bytearray):
        pass

    buffer = Buffer(stele.save(DATA, format="safetensors"))
    file = stele.open(memoryview(buffer) if way == "memoryview" else buffer)
    array, alive = file["a"].numpy(), weakref.ref(buffer)
    assert not array.flags.writeable
    file.close()
    del file, buffer
    gc.collect()
    assert alive() is not None and equal_bits(array, DATA["a"])
    del array
    gc.collect()
    assert alive() is None


def test_a_closed_file_raises(path: Path) -> None:
    with stele.open(path) as file:
        tensor = file["a"]
    uses: list[Callable[[], Any]] = [
        lambda: file["a"],
        lambda: list(file),
        lambda: len(file),
        lambda: "a" in file,
        lambda: file.format,
        lambda: file.metadata,
        lambda: file.values,
        lambda: file.tree,
        lambda: file.checkpoint,
        lambda: file.numpy(),
        lambda: file.__enter__(),
        lambda: pickle.dumps(file),
        lambda: tensor.numpy(),
        lambda: tensor[0],
        lambda: tensor.stats(),
        lambda: tensor.read_into(np.empty_like(DATA["a"])),
        lambda: np.asarray(tensor),
        lambda: stele.save(file, format="stele"),
        lambda: stele.save({"x": tensor}, format="stele"),
        lambda: stele.transforms.filter(file, "a"),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="the file is closed"):
            use()
    file.close()
    assert repr(file) == "<stele.File: closed>" and tensor.shape == (3, 4, 5)


def test_the_protocols_of_arrays(path: Path) -> None:
    tensor = stele.open(path)["a"]
    assert equal_bits(np.asarray(tensor), DATA["a"]) and not np.asarray(tensor).flags.writeable
    assert np.array(tensor, np.float64).dtype == np.float64 and np.array(tensor).flags.writeable
    assert equal_bits(np.from_dlpack(tensor), DATA["a"]) and tensor.__dlpack_device__() == (1, 0)
    assert equal_bits(np.concatenate([tensor, tensor])[3:], DATA["a"])
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__(np.float64, copy=False)


def test_the_buffer_of_a_tensor_has_its_numbers() -> None:
    for shape in ((2, 3), (), (0, 2)):
        array = sample("f32", shape)
        tensor = stele.open(stele.save({"a": array}, format="stele"))["a"]
        assert tensor.__buffer__(0).tobytes() == array.tobytes()
        if sys.version_info >= (3, 12):
            assert bytes(tensor) == array.tobytes()


@pytest.mark.parametrize("dtype", ["bf16", "f8_e4m3fn"])
def test_elements_that_a_buffer_cannot_have_become_an_array_all_the_same(dtype: str) -> None:
    array = sample(dtype, (2, 3))  # from 3.12 on, NumPy asks for the buffer first
    tensor = stele.open(stele.save({"a": array}, format="stele"))["a"]
    with pytest.raises(BufferError, match="numpy"):
        tensor.__buffer__(0)
    found = np.asarray(tensor)
    assert found.dtype == array.dtype and found.shape == (2, 3)


@pytest.mark.parametrize("way", WAYS)
def test_arrays_have_the_types_of_numpy(way: str, tmp_path: Path) -> None:
    types = [np.int64, np.uint64, np.int32, np.float64, np.bool_]
    file = opened(way, {kind.__name__: np.ones(3, kind) for kind in types}, tmp_path)
    for kind in types:
        tensor = file[kind.__name__]
        for array in (tensor.numpy(), tensor[1:], file.numpy()[kind.__name__], np.asarray(tensor)):
            assert array.dtype.type is kind and isinstance(array[0], kind)


# --- read_into ---


@pytest.mark.parametrize("way", WAYS)
def test_elements_are_read_into_memory_of_the_caller(way: str, tmp_path: Path) -> None:
    tensors = {"a": DATA["a"], "c": DATA["c"], "s": np.float64(3.5)}
    file = opened(way, tensors, tmp_path)
    out = np.zeros((3, 4, 5), np.float32)
    file["a"].read_into(out)
    assert equal_bits(out, DATA["a"])
    wide = np.zeros((3, 8, 5), np.float32)
    file["a"].read_into(wide[:, ::2])
    assert equal_bits(wide[:, ::2], DATA["a"]) and not wide[:, 1::2].any()
    for other in (
        np.zeros((3, 4, 5)),
        np.zeros((3, 4, 5), ">f4"),
        np.asfortranarray(out * 0),
        np.zeros((3, 4, 5), "f2"),
    ):
        file["a"].read_into(other)
        assert np.array_equal(other, DATA["a"])
    scalar = np.zeros(())
    file["s"].read_into(scalar)
    assert scalar == 3.5


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i4", "f6_e2m3", "i8"])
def test_a_buffer_receives_the_bytes_of_the_file(dtype: str) -> None:
    tensor = stele.open(stele.save({"a": sample(dtype, (4, 6))}, format="stele"))["a"]
    out, memory = bytearray(tensor.nbytes), np.zeros(tensor.nbytes, np.uint8)
    tensor.read_into(out)
    tensor.read_into(memory)
    assert bytes(out) == memory.tobytes()
    if dtype not in ("i4", "f6_e2m3"):
        assert bytes(out) == sample(dtype, (4, 6)).tobytes()
    numbers = python_array("f", [0] * 24)
    if dtype == "f32":
        tensor.read_into(memoryview(numbers).cast("B").cast("f", (4, 6)))
        assert numbers.tobytes() == bytes(out)


@pytest.mark.parametrize(
    ("name", "out", "error"),
    [
        ("a", np.zeros((3, 4), np.float32), ValueError),
        ("a", np.zeros(60, np.float32), ValueError),
        ("a", np.zeros((3, 4, 5), np.int32), TypeError),
        ("a", bytearray(239), ValueError),
        ("a", bytes(240), ValueError),
        ("a", np.broadcast_to(np.float32(0), (3, 4, 5)), ValueError),
        ("a", None, TypeError),
        ("c", np.zeros(3, np.uint8), TypeError),
        ("c", np.zeros((3, 3), np.int8), ValueError),
        ("u", np.zeros(5, np.uint8), ValueError),
        ("u", bytearray(5), ValueError),
        ("m", np.zeros((2, 2), np.uint8), TypeError),
    ],
)
def test_memory_that_cannot_hold_the_elements_is_an_error(
    name: str, out: Any, error: type[Exception], tmp_path: Path
) -> None:
    tensors = {"a": DATA["a"], "c": DATA["c"], "u": np.uint8([7]), "m": np.int8([[-1, 2], [3, 4]])}
    with pytest.raises(error):
        opened("mapped", tensors, tmp_path)[name].read_into(out)


def test_progress_of_reads_grows_and_cancels() -> None:
    file = stele.open(stele.save({str(i): np.ones(50_000) for i in range(10)}, format="stele", compress=True))
    calls: list[tuple[int, int]] = []
    file.numpy(progress=lambda done, total: calls.append((done, total)))
    assert [call[0] for call in calls] == sorted(call[0] for call in calls) and calls[-1] == (4_000_000, 4_000_000)
    with pytest.raises(stele.Error) as error:
        file.numpy(progress=lambda done, total: False)
    assert error.value.code == "cancelled"
    with pytest.raises(ZeroDivisionError):
        file["0"].read_into(np.empty(50_000), progress=lambda done, total: 1 // 0)


@pytest.mark.parametrize("work", ["file.numpy({})", "file['a'].numpy()", "file['a'].read_into(np.empty(4 << 20), {})"])
def test_ctrl_c_ends_a_long_read(work: str, tmp_path: Path) -> None:
    stele.save({"a": np.zeros(4 << 20)}, tmp_path / "a.stele", compress=True, durability="process")
    code = f"""
import sys, threading, time, numpy as np, signal, os, stele
file = stele.open(sys.argv[1])
def slow(done, total):
    time.sleep(0.2)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    while True:
        {work.format("progress=slow")}
except KeyboardInterrupt:
    assert time.monotonic() - start < 3
    print("interrupted")
"""
    assert run_python(code, str(tmp_path / "a.stele")).stdout == "interrupted\n"


class Stalls(http.server.BaseHTTPRequestHandler):
    """One file by ranges; a hub that lists without end. After `small` bytes, an answer stalls."""

    protocol_version = "HTTP/1.1"
    data = b""
    small = 1 << 20
    ended = threading.Event()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        begin, end = 0, len(self.data)
        if self.path.startswith("/api/"):
            self.send_response(200)
            self.send_header("Link", f'<{self.path.split("?")[0]}?cursor={os.urandom(8).hex()}>; rel="next"')
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")
            self.ended.wait(0.05)
            return
        if self.path != "/stalls":
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last) + 1, end)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(self.data)}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.path == "/stalls" or begin > self.small:
            self.ended.wait()
        self.wfile.write(self.data[begin:end])


@pytest.mark.parametrize(
    "work",
    [
        "stele.open(f'{server}/stalls')",
        "stele.open(f'{server}/model')['big'].numpy()",
        "stele.open(f'{server}/model')['big'].stats()",
        "stele.open(f'{server}/model')['big'][1000:]",
        "stele.open('hf://o/m')",
        "stele.open('s3://bucket/dir/')",
        "CheckpointManager('s3://bucket/steps/').steps()",
    ],
)
def test_ctrl_c_ends_requests(work: str) -> None:
    try:
        stele.open("http://127.0.0.1:1/x")
    except stele.Error as error:
        if error.code == "unsupported":
            pytest.skip("this build opens no URLs")
    data = stele.save({"small": np.zeros(1 << 19, np.float32), "big": np.ones(1 << 22, np.float32)}, format="stele")
    handler = type("Handler", (Stalls,), {"data": data, "ended": threading.Event()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        code = f"""
import os, signal, sys, threading, time, stele
from stele.checkpoints import CheckpointManager
server = sys.argv[1]
threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {work}
except KeyboardInterrupt:
    print("interrupted")
"""
        environment = dict(os.environ, HF_ENDPOINT=url, AWS_ENDPOINT_URL=f"{url}/stalls", HF_HUB_CACHE="/nonexistent")
        # The stall of a connection alone would end it after 30 seconds, and six tries.
        try:
            assert run_python(code, url, timeout=60, env=environment).stdout == "interrupted\n"
        finally:
            handler.ended.set()
            server.shutdown()


def test_statistics() -> None:
    array = np.float32([1, 2, -4, 0, np.nan, np.inf])
    file = stele.open(
        stele.save({"a": array, "h": array.astype("f2"), "b": sample("bf16"), "i": sample("i4")}, format="stele")
    )
    stats = file["a"].stats()
    assert stats is not None and set(stats) == {"count", "min", "max", "mean", "std", "norm", "zeros", "nan", "inf"}
    assert (stats["count"], stats["min"], stats["max"], stats["zeros"], stats["nan"], stats["inf"]) == (
        6,
        -4,
        2,
        1,
        1,
        1,
    )
    assert stats["mean"] == -0.25 and stats == file["h"].stats()
    assert file["b"].stats() is not None and file["i"].stats()["count"] == 24  # type: ignore[index]


# --- buffers, file objects and paths ---


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


def test_seek_need_not_return_the_position() -> None:
    """SpooledTemporaryFile of Python 3.10 returns None."""
    file = stele.open(NoTell(stele.save(DATA, format="safetensors")))
    assert equal_bits(file["a"].numpy(), DATA["a"])


@pytest.mark.parametrize("source", [3, None, 1.5, [b"x"], object()], ids=str)
def test_a_source_that_is_none_is_a_type_error(source: Any) -> None:
    with pytest.raises(TypeError, match="not a path, a buffer or a file object"):
        stele.open(source)


def test_a_buffer_with_gaps_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        stele.open(memoryview(stele.save(DATA, format="safetensors"))[::2])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"limit": 1.5}, TypeError),
        ({"tag": 3}, TypeError),
        ({"names": 3}, TypeError),
        ({"limit": -1}, ValueError),
        ({"limit": "much"}, ValueError),
        ({"part": "zzz"}, KeyError),
        ({"names": "nope.txt"}, FileNotFoundError),
    ],
    ids=str,
)
def test_a_wrong_option_is_an_error(options: Any, error: type[Exception], path: Path) -> None:
    with pytest.raises(error):
        stele.open(path, **options)


def test_options_of_open(tmp_path: Path) -> None:
    stele.save({"m.a": np.ones(1), "o.a": np.zeros(1)}, tmp_path / "a.stele")
    assert list(stele.open(tmp_path / "a.stele", part="m")) == ["a"]
    assert list(stele.open((tmp_path / "a.stele").read_bytes(), part="m")) == ["a"]
    assert list(stele.open(tmp_path / "a.stele", limit=10)) == ["m.a", "o.a"]
    for tag in ("one", "two"):
        stele.save({"a": np.full(1, len(tag) + (tag == "two"))}, tmp_path / f"{tag}.zip", to_tag=tag)
    assert stele.open(tmp_path / "one.zip", tag="one")["a"][0] == 3
    with pytest.raises(KeyError):
        stele.open(tmp_path / "one.zip", tag="two")
    stele.save({"x": np.ones(2, np.float32)}, tmp_path / "p.pdiparams")
    stele.save({"x": np.ones(2, np.float32)}, tmp_path / "names.stele")
    with pytest.raises(stele.FormatError) as error:
        stele.open(tmp_path / "p.pdiparams")
    assert error.value.code == "needs_layout" and error.value.hint == "set names"
    for names in (tmp_path / "names.stele", str(tmp_path / "names.stele")):
        assert list(stele.open(tmp_path / "p.pdiparams", names=names)) == ["x"]


@pytest.mark.parametrize("kind", ["archive", "pytorch", "safetensors"])
def test_the_checkpoint_of_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("a" + FORMATS[kind])
    optimizer = {"exp_avg": {"w": np.full(3, 2, np.float32)}} if kind == "archive" else None
    stele.save({"w": np.ones(3, np.float32)}, path, optimizer=optimizer)
    checkpoint = stele.open(path).checkpoint
    if kind == "archive":
        assert checkpoint is not None and len(checkpoint) == 3 and checkpoint["optimizer"] is checkpoint.optimizer
        assert isinstance(checkpoint, Mapping) and checkpoint.training is None and not checkpoint.has_graph
        assert equal_bits(checkpoint.optimizer["exp_avg"]["w"].numpy(), np.full(3, 2, np.float32))
    elif kind == "safetensors":
        assert checkpoint is None


def test_the_optimizer_of_a_pytorch_checkpoint(tmp_path: Path) -> None:
    adam = TEST_DATA / "formats/pytorch/data/adam.pt"
    names = tmp_path / "names.txt"
    names.write_text("fc1.weight\nfc1.bias\nfc2.weight\n")
    for parameters in (names, str(names)):
        checkpoint = stele.open(adam, parameters=parameters, optimizer="optimizer_state_dict").checkpoint
        assert checkpoint is not None and list(checkpoint.optimizer["exp_avg"]) == ["fc1.weight", "fc1.bias", "fc2.weight"]
    for options, found in (({"optimizer": "none"}, "no such part"), ({"buffers": ["fc2*"]}, "number of parameters")):
        with pytest.raises(stele.Error, match=found):
            stele.open(adam, **options).checkpoint
    with pytest.raises(TypeError, match="buffers are not strings"):
        stele.open(adam, buffers=[1])


# --- pickling ---


def test_a_file_is_pickled_by_its_path(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = stele.open(path.name)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    for other in (pickle.loads(pickle.dumps(file)), copy.copy(file), copy.deepcopy(file)):
        assert other is not file and list(other) == list(file) and equal_bits(other["a"].numpy(), DATA["a"])
    tensor = pickle.loads(pickle.dumps(file["b"]))
    assert (tensor.name, tensor.dtype, tensor.shape) == ("b", "bf16", (2, 3)) and equal_bits(tensor.numpy(), DATA["b"])
    part = pickle.loads(pickle.dumps(stele.open(path, limit="1G")))
    assert list(part) == list(file)


def test_a_set_with_a_changed_shard_is_not_unpickled(tmp_path: Path) -> None:
    stele.save({"a": np.zeros(100), "b": np.ones(100)}, tmp_path / "m.safetensors.index.json", shard=800)
    data = pickle.dumps(stele.open(tmp_path / "m.safetensors.index.json"))
    assert list(pickle.loads(data)) == ["a", "b"]
    shard = tmp_path / "m-00002-of-00002.safetensors"
    os.utime(shard, (0, 0))
    with pytest.raises(OSError, match="has changed since it was pickled"):
        pickle.loads(data)
    shard.write_bytes(b"x")
    with pytest.raises(OSError, match="has changed since it was pickled"):
        pickle.loads(data)


def test_a_changed_file_is_not_unpickled(path: Path) -> None:
    data = pickle.dumps(stele.open(path))
    stele.save({**DATA, "a": DATA["a"] + 1}, path, metadata={"k": "v"}, values={"step": 3})
    with pytest.raises(OSError, match="has changed since it was pickled") as error:
        pickle.loads(data)
    assert error.value.file == str(path)  # type: ignore[attr-defined]
    path.unlink()
    with pytest.raises(OSError, match="has changed"):
        pickle.loads(data)


def test_a_changed_folder_is_not_unpickled(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    stele.save({"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}, folder, format="paddle-folder")
    data = pickle.dumps(stele.open(folder))
    assert list(pickle.loads(data)) == ["a", "b"]
    status = (folder / "a").stat()
    os.utime(folder / "a", ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    with pytest.raises(OSError, match="has changed"):
        pickle.loads(data)


def test_a_file_in_memory_is_not_pickled() -> None:
    file = stele.open(stele.save(DATA, format="safetensors"))
    for value in (file, file["a"], stele.transforms.filter(file, "a")):
        with pytest.raises(TypeError, match="opened by its path"):
            pickle.dumps(value)


# --- files of other programs ---


@pytest.mark.parametrize(
    ("name", "tensor", "dtype", "shape"),
    [
        ("pytorch/linear__linear.pt", "fc1.weight", "f32", (3, 2)),
        ("pytorch/integer__integer.pt", "buffer", "i64", (3,)),
        ("burn/mnist-web-head.bpk", None, "f32", (64, 1, 3, 3)),
        ("burn/modern-lstm-2690895bd.mpk", None, "f16", (1, 128)),
        ("nnef/scatter-nd-block__indices.0.dat", None, "i64", (2, 3, 3, 3)),
        ("onnx/light/light_bvlc_alexnet.onnx", None, "f32", (1,)),
        ("samediff/non2d_0A.fb", None, "f32", (3, 4)),
        ("safetensors/multi_layer.safetensors", None, "i64", ()),
    ],
)
def test_files_of_other_programs_are_opened(name: str, tensor: str | None, dtype: str, shape: tuple[int, ...]) -> None:
    path = SHARED / "fixtures" / name
    if not path.exists():
        pytest.skip(f"{path} is missing")
    file = stele.open(path)
    first = file[tensor or next(iter(file))]
    assert (first.dtype, first.shape) == (dtype, shape)
    arrays = file.numpy()
    assert all(arrays[n].shape == t.shape and arrays[n].dtype == numpy_dtype(t.dtype) for n, t in file.items())


def test_a_path_named_like_an_option_or_standard_input_is_a_path(inside: Path) -> None:
    (inside / "-").write_bytes(stele.save({"a": np.ones(1)}, format="stele"))
    for name in ("-x.stele", "--json.stele", "-"):
        stele.save({"a": np.ones(1)}, name, format="stele")
        code = f"import stele; print(list(stele.open({name!r})), bool(stele.verify({name!r})))"
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert result.stdout == "['a'] True\n", result.stderr


def test_quantized_weights_are_one_tensor_or_their_parts() -> None:
    folder = TEST_DATA / "core" / "data" / "quantized" / "gptq4"
    name = "model.layers.0.self_attn.k_proj"
    with stele.open(folder) as file:
        weight = file[f"{name}.weight"]
        assert (weight.dtype, weight.shape, file.notes) == ("f32", (32, 64), [])
        composite = weight.composite
        assert composite is not None and (composite["scheme"], composite["bits"], composite["group"]) == ("gptq", 4, 64)
        assert composite["parts"][0] == f"{name}.qweight"
        numbers = weight.numpy()
        assert np.array_equal(weight[3:5, ::7], numbers[3:5, ::7])
        with stele.open(folder, parts=True) as parts:
            assert list(parts) == [f"{name}.{part}" for part in ("g_idx", "qweight", "qzeros", "scales")]
            scales, zeros = parts[f"{name}.scales"].numpy(), parts[f"{name}.qzeros"].numpy()
            assert zeros[0, 0] == 0x77777777  # 8 for all
            words = parts[f"{name}.qweight"].numpy().view(np.uint32)
            codes = np.stack([words >> 4 * i & 15 for i in range(8)], 1).reshape(64, 32)
            assert np.array_equal(numbers, ((codes.astype(np.float32) - 8) * scales.astype(np.float32)).T)
            assert parts[f"{name}.scales"].composite is None
        assert list(stele.transforms.split_composites(file)) != list(file)
    from stele.safetensors import safe_open

    with safe_open(folder / "model.safetensors", "np") as plain:
        assert set(plain.keys()) == {f"{name}.{part}" for part in ("g_idx", "qweight", "qzeros", "scales")}


def test_codes_that_are_not_decoded_are_numbers_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "eetq.safetensors"
    parts = {"fc.weight": np.int8([[1, -2], [3, 4]]), "fc.weight_scales": np.float16([0.5, 0.25])}
    stele.save(parts, path)
    with stele.open(path) as file:
        assert len(file.notes) == 1 and "eetq" in file.notes[0]
        assert file["fc.weight"].annotations == {"undecoded": "eetq"}
        assert np.array_equal(file["fc.weight"].numpy(), parts["fc.weight"])
        for target, precision in ("out.gguf", None), ("out.safetensors", "f32"):
            with pytest.raises(stele.Error, match="raw=True") as refused:
                stele.save(file, tmp_path / target, precision=precision)
            assert refused.value.code == "unsupported" and not (tmp_path / target).exists()
        report = stele.save(file, tmp_path / "copy.safetensors")
        assert [row.what for row in report] == ["quantized", "quantized"]
    with stele.open(path, raw=True) as file:
        stele.save(file, tmp_path / "raw.safetensors", precision="f32")
        assert file["fc.weight"].annotations == {}
    with pytest.raises(stele.Error):
        stele.convert(path, tmp_path / "out.gguf")
    stele.convert(path, tmp_path / "out.gguf", raw=True)
