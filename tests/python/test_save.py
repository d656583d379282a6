"""Saves: every format, dtype and memory order comes back equal, or the save is an error."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import (
    DTYPES,
    FORMATS,
    KINDS,
    NEEDS_LAYOUT,
    SINGLE,
    TEST_DATA,
    array_of_kind,
    equal_bits,
    run_python,
    sample,
)
from hypothesis import given
from hypothesis import strategies as st

import stele

FLOATS = ["f64", "f32", "f16"]
INTEGERS = ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"]
COMMON = [*FLOATS, *INTEGERS, "bool"]
F8 = ["f8_e4m3fn", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"]
WHOLE = [*COMMON, "bf16", *F8, "c64", "c128"]
PADDLE = sorted({*COMMON, "bf16", "f8_e4m3fn", "f8_e5m2", "c64", "c128"} - {"u16"})
SAFETENSORS = sorted({*WHOLE, "f4_e2m1", "f6_e2m3", "f6_e3m2"} - {"c128"})
# The dtypes that a format stores, by its page in docs/formats.
HOLDS = {
    **dict.fromkeys(["archive", "samediff", "sdnb", "sdz", "burnpack"], [*COMMON, "bf16"]),
    **dict.fromkeys(["burn-mpk", "burn-mpk.gz", "burn-json", "burn-json.gz"], [*COMMON, "bf16"]),
    **dict.fromkeys(["burn-bin", "burn-bin.gz"], []),  # stores modules alone
    **dict.fromkeys(["flax", "hdf5", "keras", "npz", "zarr"], WHOLE),
    "ptd": sorted({*WHOLE} - {"f8_e8m0", "c64", "c128"}),
    "gguf": [*FLOATS, "i64", "i32", "i16", "i8", "bf16"],
    "mxnet": [*COMMON, "bf16"],
    **dict.fromkeys(["json", "json.zst", "json.gz", "stele"], DTYPES),
    **dict.fromkeys(["nnef", "nnef-tgz", "nnef-tensor"], COMMON),
    "npy": [*COMMON, "c64", "c128"],
    "onnx": [*WHOLE, "i4", "u4", "f4_e2m1", "f6_e2m3", "f6_e3m2"],
    **dict.fromkeys(["paddle", "paddle-folder"], PADDLE),
    "pytorch": [*WHOLE, "f4_e2m1"],
    **dict.fromkeys(["safetensors", "safetensors-sharded", "hub"], SAFETENSORS),
}


def place_of(folder: Path, name: str, format: str) -> Path:
    return folder / (name + FORMATS[format])


def reopened(path: Path, format: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """Saves tensors, opens the file and returns all arrays."""
    stele.save(tensors, path, format=format, durability="process")
    names = None
    if format == "paddle":
        names = path.with_suffix(".stele")
        stele.save(tensors, names, durability="process")
    with stele.open(path, names=names) as file:
        return file.numpy(copy=True)


def test_every_format_is_in_the_table() -> None:
    assert set(HOLDS) == set(FORMATS)


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in SINGLE and f not in NEEDS_LAYOUT])
def test_every_dtype_in_every_memory_order_comes_back_equal(format: str, tmp_path: Path) -> None:
    tensors = {}
    for dtype in HOLDS[format]:
        tensors[f"{dtype}.plain"] = sample(dtype)
        for kind in KINDS:
            tensors[f"{dtype}.{kind}"] = array_of_kind(kind, sample(dtype))
        if not (dtype[:2] in ("f4", "f6") and format in ("pytorch", "safetensors", "safetensors-sharded", "hub")):
            tensors[f"{dtype}.scalar"] = sample(dtype, ())  # whole bytes alone there
        if not format.startswith("nnef"):
            tensors[f"{dtype}.empty"] = sample(dtype, (0, 4))
    found = reopened(place_of(tmp_path, "all", format), format, tensors)
    assert sorted(found) == sorted(tensors)
    assert [name for name in tensors if not equal_bits(found[name], tensors[name])] == []


@pytest.mark.parametrize("format", SINGLE)
def test_a_format_of_one_tensor_stores_every_dtype_in_every_memory_order(format: str, tmp_path: Path) -> None:
    for dtype in HOLDS[format]:
        for kind in KINDS:
            array = array_of_kind(kind, sample(dtype))
            (found,) = reopened(place_of(tmp_path, f"{dtype}-{kind}", format), format, {"a": array}).values()
            assert equal_bits(found, array), (dtype, kind)


@pytest.mark.parametrize("format", FORMATS)
def test_a_dtype_that_a_format_lacks_is_an_error(format: str, tmp_path: Path) -> None:
    path = place_of(tmp_path, "none", format)
    for dtype in set(DTYPES) - set(HOLDS[format]):
        with pytest.raises(stele.FormatError) as error:
            stele.save({"a": sample(dtype)}, path, format=format)
        assert error.value.code in ("not_representable", "needs_layout")
        if error.value.code == "not_representable":
            assert error.value.path == "a" and dtype in error.value.found
    assert not path.exists()


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in NEEDS_LAYOUT])
@pytest.mark.parametrize("kind", ["transposed", "strided", "broadcast", "big-endian"])
def test_large_arrays_in_every_memory_order_come_back_equal(format: str, kind: str, tmp_path: Path) -> None:
    """Writers read elements by pieces, of other sizes than a row."""
    dtype = "c128" if "c128" in HOLDS[format] else "f64"
    array = array_of_kind(kind, sample(dtype, (63 if format.endswith("gz") else 257, 511)))
    (found,) = reopened(place_of(tmp_path, "a", format), format, {"a": array}).values()
    assert equal_bits(found, array)


@pytest.mark.parametrize("dtype", ["bf16", "f8_e5m2", "i4", "f6_e3m2"])
def test_the_types_of_ml_dtypes_are_saved_in_every_memory_order(dtype: str) -> None:
    tensors = {kind: array_of_kind(kind, sample(dtype, (5, 7))) for kind in KINDS}
    found = stele.open(stele.save(tensors, format="stele")).numpy()
    assert [kind for kind in KINDS if not equal_bits(found[kind], tensors[kind])] == []


@given(
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from(["f4", ">i2", "c8", "u1", "?"]),
    st.randoms(use_true_random=False),
)
def test_any_view_comes_back_equal(shape: list[int], dtype: str, random: Any) -> None:
    base = np.arange(2 * 3 ** len(shape) * max(1, int(np.prod(shape))) % 65536 + 1)
    array = np.resize(base, [2 * extent + 1 for extent in shape]).astype(dtype)
    steps = tuple(slice(None, None, random.choice([1, 2, 3, -1, -2])) for _ in shape)
    axes = list(range(len(shape)))
    random.shuffle(axes)
    view = array[steps].transpose(axes)
    assert equal_bits(stele.open(stele.save({"a": view}, format="stele"))["a"].numpy(), view)


def test_integers_of_every_c_type_are_saved() -> None:
    for code in "bBhHiIlLqQ":
        array = np.arange(3).astype(np.dtype(code))
        assert equal_bits(stele.open(stele.save({"a": array}, format="stele"))["a"].numpy(), array)


@pytest.mark.parametrize("format", ["safetensors", "stele"])
def test_a_hundred_thousand_tensors_come_back(format: str) -> None:
    tensors = {f"layer.{i}": np.float32([i, -i]) for i in range(100_000)}
    found = stele.open(stele.save(tensors, format=format)).numpy()
    assert len(found) == len(tensors)
    assert all(np.array_equal(found[name], array) for name, array in tensors.items())


@pytest.mark.slow
@pytest.mark.parametrize("format", [f for f in FORMATS if f not in (*SINGLE, *NEEDS_LAYOUT)])
def test_every_format_holds_many_tensors_or_says_that_it_does_not(format: str, tmp_path: Path) -> None:
    tensors = {f"layer.{i}": np.float32([i, -i]) for i in range(100_000)}
    try:
        found = reopened(place_of(tmp_path, "many", format), format, tensors)
    except stele.Error as error:
        assert error.code in ("not_representable", "limit"), error
        return
    assert all(np.array_equal(found[name], array) for name, array in tensors.items())


def test_nested_dicts_and_lists_become_dotted_names() -> None:
    one = np.ones(2, np.float32)
    data = stele.save({"a": {"b": [one, {"c": one}], 7: one}, "d": (one,)}, format="stele")
    assert list(stele.open(data)) == ["a.b.0", "a.b.1.c", "a.7", "d.0"]
    tree = stele.open(data).tree
    assert isinstance(tree["a"]["b"], list) and set(tree["a"]) == {"b", "7"} and isinstance(tree["d"], list)


def test_an_empty_key_is_a_level_of_its_own() -> None:
    one = np.ones(2, np.float32)
    file = stele.open(stele.save({"": {"x": one}, "x": one, "y": {"": one}}, format="stele"))
    assert sorted(file) == [".x", "x", "y."]
    assert set(file.tree) == {"", "x", "y"} and set(file.tree[""]) == {"x"}


VALUES = {
    "i": -5,
    "u": 2**64 - 1,
    "f": 0.1,
    "s": "ä",
    "b": True,
    "n": None,
    "x": b"\0\xff",
    "l": [1, [2.5, "z"]],
    "m": {"k": 1},
}


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Returns types and numbers, strings, bytes by path: some formats have lists and maps as levels of names."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {path: leaf for key, item in items for path, leaf in flat(item, f"{name}.{key}").items()}
    return {name: (type(value), value)}


def test_values_come_back_equal_and_in_their_types() -> None:
    file = stele.open(stele.save({"a": np.ones(1)}, format="stele", values=VALUES))
    assert dict(file.values) == VALUES
    assert [type(value) for value in file.values.values()] == [type(value) for value in VALUES.values()]
    assert file.tree["m"] == {"k": 1}


def test_values_in_the_tree_are_saved_beside_tensors() -> None:
    file = stele.open(stele.save({"a": [np.ones(1), 2.5, np.ones(1)], "step": 3, "name": "x"}, format="stele"))
    assert dict(file.values) == {"a.1": 2.5, "step": 3, "name": "x"}
    assert isinstance(file.tree["a"], list) and file.tree["a"][1] == 2.5


def test_scalars_of_numpy_are_tensors_of_every_dtype() -> None:
    scalars = {code: np.dtype(code).type(1) for code in ("f8", "f4", "f2", "i8", "u1", "c16", "?")}
    file = stele.open(stele.save(scalars, format="stele"))
    assert {name: tensor.numpy().dtype.str[1:] for name, tensor in file.items()} == {
        code: np.dtype(code).str[1:] for code in scalars
    }
    assert all(tensor.shape == () for tensor in file.values())


def test_a_value_that_the_format_lacks_is_an_error_and_a_loss_on_request() -> None:
    tensors = {"a": np.ones(1), "step": 3}
    with pytest.raises(stele.FormatError, match="step") as error:
        stele.save(tensors, format="npy")
    assert error.value.code == "not_representable" and error.value.hint == "set allow_loss"
    report = stele.save(tensors, io.BytesIO(), format="npy", allow_loss=True)
    assert report.paths("lost") == ["step"]


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in (*NEEDS_LAYOUT, "paddle")])
def test_values_come_back_equal_from_every_format_or_are_errors(format: str, tmp_path: Path) -> None:
    for name, value in VALUES.items():
        path = place_of(tmp_path, name, format)
        try:
            stele.save(
                {"w": np.ones((2, 2), np.float32)}, path, format=format, values={name: value}, durability="process"
            )
        except stele.Error as error:
            assert (error.code, error.path) == ("not_representable", name)
            continue
        with stele.open(path) as file:
            found = dict(file.values)
        assert flat(found) == flat({name: value})


def test_an_opened_file_in_a_dict_brings_its_tensors_and_values() -> None:
    inner = stele.open(stele.save({"a": np.ones(1), "step": 3, "l": [1, "x"]}, format="stele"))
    file = stele.open(stele.save({"m": inner, "n": [inner]}, format="stele"))
    assert list(file) == ["m.a", "n.0.a"]
    assert dict(file.values) == {
        f"{p}.{n}": v for p in ("m", "n.0") for n, v in (("step", 3), ("l.0", 1), ("l.1", "x"))
    }


def test_ties_are_stored_once_and_opened_under_both_names() -> None:
    array = np.arange(1000.0)
    data = stele.save({"a": array}, format="stele", ties={"b": "a"})
    assert len(data) < 2 * array.nbytes
    file = stele.open(data)
    assert list(file) == ["a", "b"] and equal_bits(file["b"].numpy(), array)
    copied = stele.open(stele.save(file, format="stele", metadata={"k": "v"}))
    assert list(copied) == ["a", "b"] and copied.nbytes == array.nbytes and copied.metadata == {"k": "v"}


@pytest.mark.parametrize(
    ("tensors", "options"),
    [
        ({"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, {}),
        ({"a": np.ones(1)}, {"values": {"a": 1}}),
        ({"a": np.ones(1)}, {"ties": {"a": "a"}}),
        ({"a": np.ones(1)}, {"ties": {"b": "c"}}),
    ],
)
def test_duplicate_names_and_ties_to_nothing_are_errors(tensors: Any, options: Any) -> None:
    with pytest.raises(ValueError, match="a|c"):
        stele.save(tensors, format="stele", **options)


@pytest.mark.parametrize(
    "entry",
    [
        np.array(["x"]),
        np.array([object()]),
        np.array(["2020"], "M8[D]"),
        np.zeros(2, "f4,i4"),
        np.zeros(2, [("bf16", "u4")]),
        np.zeros(2, [("bf16", "f2")]),
        np.zeros(2, np.longdouble),
        np.ma.array([1, 2], mask=[0, 1]),
        object(),
        {1, 2},
        1j,
        range(3),
    ],
)
def test_an_entry_that_is_no_tensor_is_a_type_error_with_its_name(entry: Any) -> None:
    with pytest.raises(TypeError, match=r"layer\.w"):
        stele.save({"layer": {"w": entry}}, format="stele")


@pytest.mark.parametrize("key", [1.5, None, True, (1,), b"x"], ids=str)
def test_a_key_that_is_no_name_is_a_type_error(key: Any) -> None:
    with pytest.raises(TypeError, match="a name must be str"):
        stele.save({"a": {key: np.ones(1)}}, format="stele")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"precision": 3}, TypeError),
        ({"quantize": 1.5}, TypeError),
        ({"quantize": "int5"}, ValueError),
        ({"quantize": 99}, ValueError),
        ({"threads": -1}, ValueError),
        ({"threads": 2**40}, ValueError),
        ({"threads": 1.5}, TypeError),
        ({"durability": "none"}, ValueError),
        ({"metadata": {"a": 1}}, TypeError),
        ({"precision": "f17"}, ValueError),
        ({"format": "word"}, ValueError),
        ({"format": 7}, TypeError),
        ({"compress": True, "format": "npz"}, ValueError),
        ({"shard": [1]}, TypeError),
        ({"values": {"a.b": 2**70}}, OverflowError),
    ],
    ids=str,
)
def test_a_wrong_option_is_a_type_or_value_error(options: Any, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        stele.save({"a": np.ones(1)}, tmp_path / "a.stele", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_no_path_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not a path or a file object: int"):
        stele.save({"a": np.ones(1)}, 7, format="stele")
    with pytest.raises(TypeError, match="not a dict of tensors"):
        stele.save(np.ones(1), format="stele")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="need"):
        stele.save({"a": np.ones(1)})


def test_bytes_file_objects_and_paths_receive_the_same_file(tmp_path: Path) -> None:
    tensors = {"a": sample("f32"), "b": sample("bf16")}
    data = stele.save(tensors, format="safetensors")
    memory = io.BytesIO()
    stele.save(tensors, memory, format="safetensors")
    with open(tmp_path / "b.safetensors", "wb") as file:
        stele.save(tensors, file, format="safetensors")
    stele.save(tensors, tmp_path / "c.safetensors")
    stele.save(tensors, os.fsencode(tmp_path / "d.safetensors"))
    files = {path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {data} == {memory.getvalue()}


class Refusing(io.BytesIO):
    def write(self, data: Any) -> int:
        raise ConnectionError("no route")


class Short(io.BytesIO):
    def write(self, data: Any) -> int:
        return super().write(data[:100])


class Strange(io.BytesIO):
    answer: Any = 0

    def write(self, data: Any) -> Any:
        return self.answer


def test_a_file_object_may_take_less_than_it_is_given() -> None:
    target = Short()
    stele.save({"a": sample("f32", (100,))}, target, format="stele")
    assert equal_bits(stele.open(target.getvalue())["a"].numpy(), sample("f32", (100,)))


def test_an_error_of_a_file_object_is_seen() -> None:
    with pytest.raises((stele.OperatingSystemError, ConnectionError), match="no route"):
        stele.save({"a": np.ones(1)}, Refusing(), format="stele")
    for answer in (0, -1, 10**6, "x", 2.5):
        target = Strange()
        target.answer = answer
        with pytest.raises(stele.OperatingSystemError):
            stele.save({"a": np.ones(1)}, target, format="stele")
    with pytest.raises((stele.OperatingSystemError, TypeError), match="bytes"):
        stele.save({"a": np.ones(1)}, io.StringIO(), format="stele")


def test_without_overwrite_an_existing_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.stele"
    stele.save({"a": np.ones(1)}, path, overwrite=False)
    before = path.read_bytes()
    with pytest.raises(FileExistsError) as error:
        stele.save({"a": np.zeros(1)}, path, overwrite=False)
    assert isinstance(error.value, stele.OperatingSystemError) and error.value.code == "exists"
    assert path.read_bytes() == before


def test_a_file_can_be_saved_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    stele.save({"a": np.arange(5.0), "b": np.ones(3)}, path)
    with stele.open(path) as file:
        kept = file["b"].numpy()
        stele.save({"a": file["a"], "c": kept}, path)
        assert equal_bits(kept, np.ones(3))
    assert equal_bits(stele.open(path)["a"].numpy(), np.arange(5.0)) and "c" in stele.open(path)


def test_a_dry_run_writes_nothing_and_reports_losses(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    report = stele.save({"a": np.ones(1), "s": 1}, path, dry_run=True, allow_loss=True)
    assert not path.exists() and report.paths("lost") == ["s"] and report.count("lost") == 1
    assert "s" in str(report) and "1 lost" in repr(report)


def test_overflows_are_errors_or_counted() -> None:
    with pytest.raises(stele.FormatError) as error:
        stele.save({"a": np.float32([1e10])}, format="stele", precision="f16")
    assert error.value.path == "a" and "allow_overflow" in error.value.hint
    memory = io.BytesIO()
    report = stele.save({"a": np.float32([1e10])}, memory, format="stele", precision="f16", allow_overflow=True)
    assert report.count("overflowed") == 1
    assert np.isinf(stele.open(memory)["a"].numpy()).all()


def test_progress_grows_to_the_total() -> None:
    calls: list[tuple[int, int]] = []
    tensors = {str(i): np.ones(100_000) for i in range(10)}
    stele.save(tensors, io.BytesIO(), format="stele", progress=lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done == sorted(done) and calls[-1][0] == calls[-1][1] == 8_000_000


def test_progress_feeds_a_bar_of_tqdm() -> None:
    class Bar:
        total, done = None, 0

        def update(self, n: int) -> None:
            self.done += n

    bar = Bar()
    stele.save({"a": np.ones(1000)}, io.BytesIO(), format="stele", progress=stele.progress(bar))
    assert bar.done == bar.total == 8000


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    "format", ["stele", "safetensors", "npz", "pytorch", "json.zst", "paddle-folder", "safetensors-sharded"]
)
def test_a_cancelled_save_leaves_no_file(format: str, tmp_path: Path) -> None:
    tensors = {"a": np.ones(1000), "b": np.ones(1000)}

    def stop(done: int, total: int) -> None:
        raise Stop(done)

    with pytest.raises(Stop):
        stele.save(tensors, place_of(tmp_path, "a", format), format=format, progress=stop)
    with pytest.raises(stele.Error) as error:
        stele.save(tensors, place_of(tmp_path, "a", format), format=format, progress=lambda done, total: False)
    assert error.value.code == "cancelled"
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import sys, time, numpy as np, stele
tensors = {str(i): np.ones(1 << 17) for i in range(8)}
stele.save(tensors, sys.argv[1] + "/a.stele")
print("ready", flush=True)
try:
    WORK
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "work",
    [
        "stele.save(tensors, sys.argv[1] + '/b.stele', progress=lambda done, total: time.sleep(0.5))",
        "stele.save({str(i): np.random.default_rng(i).random(1 << 20) for i in range(40)}, sys.argv[1] + '/b.json.gz')",
        "stele.save({'a': np.broadcast_to(np.ones(1), (1 << 22,))}, sys.argv[1] + '/a.json')"
        "; stele.convert(sys.argv[1] + '/a.json', sys.argv[1] + '/b.burn-json.gz', to='burn-json.gz')",
    ],
    ids=["save with progress", "save", "convert"],
)
def test_ctrl_c_ends_a_save_and_leaves_no_file(work: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.replace("WORK", work), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    before = set(os.listdir(tmp_path))
    while not any("b." in name for name in os.listdir(tmp_path)):
        time.sleep(0.01)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert rest == "interrupted\n" and process.returncode == 0
    assert time.monotonic() - started < 3
    assert [name for name in os.listdir(tmp_path) if name not in before and name != "a.json"] == []


def test_signal_handlers_run_during_a_save() -> None:
    calls: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        stele.save({"a": np.ones(3)}, io.BytesIO(), format="stele", progress=lambda done, total: time.sleep(0.5))
        end = time.monotonic()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(calls) == 1 and calls[0] < end - 0.2


def test_a_second_ctrl_c_ends_a_save_that_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.stele")
    code = """
import sys, numpy as np, stele
print("ready", flush=True)
try:
    stele.save({"a": np.ones(3)}, sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "pipe.stele")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(20):
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        if process.poll() is not None:
            break
    rest, _ = process.communicate(timeout=10)
    assert rest == "interrupted\n"


def test_other_threads_run_during_a_save() -> None:
    code = """
import threading, time, numpy as np, stele
counts, stop = [0], threading.Event()
def count():
    while not stop.is_set():
        counts[0] += 1
        time.sleep(0.001)
thread = threading.Thread(target=count)
array = np.random.default_rng(0).random(1 << 22)
thread.start()
before, start = counts[0], time.monotonic()
data = stele.save({"a": array[::-1]}, format="json.zst")
assert counts[0] - before > 100 * (time.monotonic() - start), (counts[0] - before, time.monotonic() - start)
before, start = counts[0], time.monotonic()
stele.open(data)["a"].numpy()
assert counts[0] - before > 100 * (time.monotonic() - start), (counts[0] - before, time.monotonic() - start)
stop.set()
thread.join()
"""
    run_python(code)


def test_a_name_of_a_file_need_not_be_utf_8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.stele")
    stele.save({"a": np.ones(1)}, path)
    assert "a" in stele.open(path)
    assert stele.verify(path)


def test_names_with_any_character_come_back() -> None:
    names = ["a\0b", "ä", "\udcff", "\U0001f600", " ", "a/b", "../x", "\\", "\\e"]
    file = stele.open(stele.save({name: np.float32([i]) for i, name in enumerate(names)}, format="stele"))
    assert list(file) == names
    assert [float(file[name][0]) for name in names] == list(range(len(names)))


def test_optimizer_state_is_saved_in_formats_of_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    weights = {"w": np.arange(4, dtype=np.float32)}
    state = {"exp_avg": {"w": np.full(4, 2, np.float32)}}
    stele.save(weights, path, optimizer=state)
    with stele.open(path) as file:
        checkpoint = file.checkpoint
        assert checkpoint is not None and list(checkpoint) == ["optimizer", "training", "tags"]
        assert equal_bits(checkpoint.optimizer["exp_avg"]["w"].numpy(), state["exp_avg"]["w"])
        assert equal_bits(file["w"].numpy(), weights["w"]) and len(checkpoint.tags) == 1
    with pytest.raises(stele.FormatError) as error:
        stele.save(weights, tmp_path / "b.safetensors", optimizer=state)
    assert error.value.code == "unsupported"


def test_a_byte_of_a_bool_that_is_not_0_is_true(tmp_path: Path) -> None:
    odd = np.frombuffer(b"\0\1\2\xff", bool)
    for array in (odd, odd[::-1]):
        stele.save({"a": array}, tmp_path / "a.stele")
        assert list(stele.open(tmp_path / "a.stele")["a"].numpy()) == [bool(b) for b in array]


def test_a_mask_is_never_lost(tmp_path: Path) -> None:
    array = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    for masked in (array, array.T, array[:, ::-1], array[0]):
        with pytest.raises(TypeError, match=r"^a: no format has masks; use \.filled\(\)$"):
            stele.save({"a": masked}, format="stele")
    for whole in (array[1], array.filled(), np.ma.array([1.0, 2.0]), np.ma.array([1], mask=[False])):
        assert equal_bits(stele.open(stele.save({"a": whole}, format="stele"))["a"].numpy(), np.asarray(whole))
    with pytest.raises(TypeError, match="mask"):
        stele.open(stele.save({"a": np.ones((2, 2))}, format="stele"))["a"].read_into(array)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        *((name, name) for name in ("f16", "bf16", "f64", "f32")),
        *(("float16", "f16"), ("half", "f16"), ("float32", "f32"), ("float64", "f64"), ("double", "f64"), ("bfloat16", "bf16")),
        *((np.float16, "f16"), (np.dtype("f8"), "f64"), (ml_dtypes.bfloat16, "bf16"), (float, "f64")),
    ],
    ids=str,
)
def test_precisions_have_the_names_of_numpy_and_torch(precision: Any, dtype: str, tmp_path: Path) -> None:
    stele.save({"a": np.ones(4, np.float32)}, tmp_path / "a.stele", precision=precision)
    stele.convert(tmp_path / "a.stele", tmp_path / "b.stele", precision=precision)
    files = [stele.open(tmp_path / name) for name in ("a.stele", "b.stele")]
    files.append(stele.transforms.precision(stele.open(stele.save({"a": np.ones(4, np.float32)}, format="stele")), precision))
    assert [file["a"].dtype_name for file in files] == [dtype] * 3


@pytest.mark.parametrize(("name", "format"), [("pt", "pytorch"), (".pth", "pytorch"), ("h5", "hdf5"), ("msgpack", "flax")])
def test_an_extension_names_a_format(name: str, format: str) -> None:
    file = stele.open(stele.save({"a": np.ones(4, np.float32)}, format=name))
    assert file.format == format
    with pytest.raises(stele.FormatError, match="no format has this name"):
        stele.save({"a": np.ones(4, np.float32)}, format="a/b.pt")


def test_a_dtype_that_is_no_precision_is_an_error() -> None:
    for precision in ("int8", np.int8, "word"):
        with pytest.raises(stele.FormatError, match="no such precision"):
            stele.save({"a": np.ones(4)}, format="stele", precision=precision)


EMPTY = {"a": np.ones(1, np.float32), "b": {}, "c": {"d": [], "e": ()}}


def saved_in_three_ways(tensors: Any, folder: Path, name: str, **options: Any) -> Iterator[stele.File]:
    stele.save(tensors, folder / "a", format=name, **options)
    yield stele.open(next(folder.glob("a*")))
    buffer = io.BytesIO()
    stele.save(tensors, buffer, format=name, **options)
    yield stele.open(buffer)
    yield stele.open(stele.save(tensors, format=name, **options))


@pytest.mark.parametrize("name", ["stele", "json", "safetensors", "pytorch", "npz", "gguf", "archive"])
def test_an_empty_container_is_a_value(name: str, tmp_path: Path) -> None:
    for file in saved_in_three_ways(EMPTY, tmp_path, name):
        assert list(file) == ["a"] and dict(file.values) == {"b": {}, "c.d": [], "c.e": []}
        assert file.tree["b"] == {} and file.tree["c"] == {"d": [], "e": []}


def test_a_format_without_values_has_no_empty_containers(tmp_path: Path) -> None:
    for target in (tmp_path / "a.npy", io.BytesIO(), None):
        with pytest.raises(stele.FormatError) as error:
            stele.save(EMPTY, target, format="npy")
        assert (error.value.code, error.value.path) == ("not_representable", "b")
    report = stele.save(EMPTY, tmp_path / "a.npy", allow_loss=True)
    assert report.paths("lost") == ["b", "c.d", "c.e"]


@pytest.mark.parametrize("root", [list, tuple])
def test_lists_of_tensors_have_their_numbers_as_names(root: Any, tmp_path: Path) -> None:
    arrays = root([np.ones(2, np.float32), {"w": (np.zeros(3, np.float32), 7)}])
    for file in saved_in_three_ways(arrays, tmp_path, "safetensors"):
        assert list(file) == ["0", "1.w.0"] and dict(file.values) == {"1.w.1": 7}
        assert equal_bits(file["0"].numpy(), arrays[0])


@pytest.mark.parametrize("more", [{"metadata": {"k": "v"}}, {"values": {"epoch": 1}}])
def test_what_a_file_has_besides_tensors_is_a_row_of_its_save(tmp_path: Path, more: dict[str, Any]) -> None:
    file = stele.open(TEST_DATA / "formats/onnx/data/fold_21.onnx")
    report = stele.save(file, tmp_path / "a.stele", **more)
    assert list(report) == [("lost", "", "the graph: only its tensors are saved")]


def test_tags_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    stele.save({"w": np.zeros(2)}, path, format="archive", to_tag="one")
    stele.save({"w": np.ones(2)}, path, format="archive", to_tag="two", append=True)
    assert [stele.open(path, tag=tag)["w"].numpy()[0] for tag in ("one", "two")] == [0, 1]
    with pytest.raises(stele.ExistsError):
        stele.save({"w": np.ones(2)}, path, format="archive", to_tag="two", append=True)
    with pytest.raises(ValueError, match="appended"):
        stele.save({"w": np.ones(2)}, format="archive", to_tag="two", append=True)


@pytest.mark.parametrize("tensors", [{"w": np.ones(2), "s": "text"}, {"w": np.ones(2), "empty": {}}])
def test_bytes_have_all_or_are_an_error(tensors: dict[str, Any]) -> None:
    with pytest.raises(stele.FormatError, match="io.BytesIO") as error:
        stele.save(tensors, format="npy", allow_loss=True)
    assert error.value.code == "not_representable" and error.value.path in tensors
    assert stele.save(tensors, io.BytesIO(), format="npy", allow_loss=True).count("lost") == 1


def test_a_tag_of_bytes_is_an_error() -> None:
    with pytest.raises(stele.FormatError, match="opened by its path"):
        stele.open(stele.save({"a": np.ones(1)}, format="stele"), tag="x")
