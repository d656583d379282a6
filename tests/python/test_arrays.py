"""Elements of opened files: parts, arrays, views, reads into memory, statistics."""

from __future__ import annotations

import gc
import io
import pickle
import sys
import weakref
from array import array as python_array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, WAYS, equal_bits, opened, sample
from hypothesis import given
from hypothesis import strategies as st

import stele

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
