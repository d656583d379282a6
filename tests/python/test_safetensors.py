"""stele.safetensors: the same names, results and files as safetensors 0.8.0; equal values where that loses them."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy as original_numpy
from conftest import KINDS, array_of_kind, equal_bits, numpy_dtype, sample
from hypothesis import strategies as st

import stele
import stele.safetensors as drop_in
import stele.safetensors.numpy as drop_in_numpy
from stele import _dtypes
from stele.safetensors import SafetensorError, TensorSpec, deserialize, safe_open, serialize, serialize_file
from stele.safetensors._dtypes import BITS, CODES, PACKED, SPEC_DTYPES
from stele.safetensors.numpy import load, load_file, save, save_file

original: Any = importlib.import_module("safetensors")
Array = np.ndarray[Any, Any]
DTYPES = list(CODES)
# Dtypes that safetensors itself stores from NumPy.
ORIGINAL_DTYPES = [name for name in DTYPES if name not in PACKED]
BACKENDS = ("mmap", "pread")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "model.safetensors")


def write(path: str, header: Any, data: bytes = b"", length: int | None = None) -> str:
    """Writes a file with a header of our own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


ONE = {"a": entry("F32", [2, 3], 0, 24)}
DATA = np.arange(6, dtype="<f4").tobytes()


# --- the same API ---


def test_names_and_version() -> None:
    assert drop_in.__version__ == original.__version__ == "0.8.0"
    public = {name for name in vars(original) if not name.startswith("_")} - {"numpy", "torch"}
    assert public <= set(vars(drop_in)), public - set(vars(drop_in))
    assert {"_safe_open_handle", "__version__"} <= set(vars(drop_in))
    importlib.import_module(SafetensorError.__module__)


def test_signatures() -> None:
    for name in ("save", "save_file", "load", "load_file"):
        ours, theirs = (inspect.signature(getattr(m, name)) for m in (drop_in_numpy, original_numpy))
        assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()
        ], name
    names = [(p.name, p.default) for p in inspect.signature(safe_open).parameters.values()]
    empty = inspect.Parameter.empty
    assert names == [("filename", empty), ("framework", empty), ("device", "cpu"), ("backend", "mmap")]


def test_without_torch(path: str) -> None:
    code = "import sys; sys.modules['torch'] = None; import stele.safetensors.numpy as n; n.load(n.save({}))"
    from conftest import run_python

    run_python(code)


# --- the same files, in every memory order ---


@pytest.mark.parametrize("dtype", ORIGINAL_DTYPES)
def test_files_are_identical(dtype: str, path: str, tmp_path: Path) -> None:
    tensors = {"b.weight": sample(dtype), "a": sample(dtype, (3,)), "s": sample(dtype, ()), "e": sample(dtype, (0, 2))}
    metadata = {"format": "pt"}
    expected = original_numpy.save(tensors, metadata)
    assert save(tensors, metadata) == expected
    save_file(tensors, path, metadata)
    assert Path(path).read_bytes() == expected


def test_order_of_dtypes_is_identical() -> None:
    tensors = {f"{i}.{dtype}": sample(dtype, (2, i + 1)) for dtype in ORIGINAL_DTYPES for i in range(3)}
    assert save(tensors) == original_numpy.save(tensors)
    assert save(tensors, {"é\n": '"\u2028\x01'}) == original_numpy.save(tensors, {"é\n": '"\u2028\x01'})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_comes_back_equal(dtype: str, kind: str, path: str) -> None:
    array = array_of_kind(kind, sample(dtype))
    expected = array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array
    save_file({"a": array}, path)
    assert Path(path).read_bytes() == save({"a": array})
    assert equal_bits(load(save({"a": array}))["a"], expected)
    for backend in BACKENDS:
        assert equal_bits(load_file(path, backend=backend)["a"], expected)
        with safe_open(path, "np", backend=backend) as file:
            assert equal_bits(file.get_tensor("a"), expected)
            assert equal_bits(file.get_tensors()["a"], expected)
            assert equal_bits(file.get_slice("a")[:], expected)
            assert equal_bits(file.get_slice("a")[1:3, 2], expected[1:3, 2])
    (item,) = original.deserialize(Path(path).read_bytes())
    assert item[1]["dtype"] == CODES[dtype]
    if dtype not in PACKED:
        assert item[1]["data"] == np.ascontiguousarray(expected).tobytes()


@hypothesis.given(st.data())
def test_any_view_comes_back_equal(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    array: Array = np.arange(int(np.prod(shape))).reshape(shape).astype(data.draw(st.sampled_from(["f4", ">i2", "c8"])))
    array = array.transpose(data.draw(st.permutations(range(len(shape)))))
    slices = [st.slices(extent) if extent else st.just(slice(None)) for extent in array.shape]
    view = array[data.draw(st.tuples(*slices))]
    assert np.array_equal(load(save({"a": view}))["a"], view)


def test_numbers_of_numpy_and_subclasses() -> None:
    number: Any = np.float32(3)
    assert load(save({"a": number}))["a"] == number
    assert np.array_equal(load(save({"a": np.arange(2).view(type("Sub", (np.ndarray,), {}))}))["a"], [0, 1])


def test_results_can_be_changed(path: str) -> None:
    save_file({"a": np.zeros(3), "b": np.zeros((2, 2))}, path)
    before = Path(path).read_bytes()
    with safe_open(path, "np") as file:
        arrays = [file.get_tensor("a"), file.get_tensors()["b"], file.get_slice("b")[0], file.get_slice("b")[:, 0]]
    for array in [*arrays, load(before)["a"], load_file(path)["a"]]:
        array[...] = 7
    with safe_open(path, "np") as file:
        assert not file.get_tensor("a").any()
    assert Path(path).read_bytes() == before


def test_a_mask_is_never_lost() -> None:
    array = np.ma.array([1, 2, 3], mask=[False, True, False])
    with pytest.raises(SafetensorError, match=r"^a: no format has masks; use \.filled\(\)$"):
        save({"a": array})
    for whole in (np.ma.array([1, 2, 3]), np.ma.array([1, 2, 3], mask=[False] * 3)):
        assert equal_bits(load(save({"a": whole}))["a"], np.array([1, 2, 3]))


def test_without_ml_dtypes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": sample("bf16"), "q": sample("f4_e2m1")}, path)
    monkeypatch.setattr(_dtypes, "ml_dtype", lambda name: None)
    raw = load_file(path)
    assert raw["a"].dtype.names == ("bf16",) and raw["a"].shape == (4, 6)
    assert save({"a": raw["a"]}) == original_numpy.save({"a": sample("bf16")})
    with safe_open(path, "np") as file:
        assert file.get_slice("a")[1:2].shape == (1, 6)
        with pytest.raises(SafetensorError, match="need ml_dtypes"):
            file.get_slice("q")[0]


# --- safe_open ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_and_metadata(path: str, backend: str) -> None:
    save_file({"b": np.zeros(2, "f2"), "c": np.zeros(2), "a": np.zeros(2, "u1")}, path, {"k": "v"})
    with safe_open(path, framework="numpy", backend=backend) as file, original.safe_open(path, "np") as other:
        assert file.keys() == other.keys() == ["a", "b", "c"]
        assert file.offset_keys() == other.offset_keys() == ["c", "b", "a"]
        assert list(file.get_tensors()) == list(other.get_tensors()) == ["c", "b", "a"]
        assert file.metadata() == other.metadata() == {"k": "v"}
        part = file.get_slice("a")
        assert (part.get_shape(), part.get_dtype()) == ([2], "U8")


@pytest.mark.parametrize("text", ['"__metadata__":{},', '"__metadata__":null,', ""])
def test_no_metadata(path: str, text: str) -> None:
    write(path, ("{" + text + json.dumps(ONE)[1:]).encode(), DATA)
    with safe_open(path, "np") as file, original.safe_open(path, "np") as other:
        assert file.metadata() == other.metadata()


def test_without_context_manager_and_after_closing(path: str) -> None:
    save_file({"a": np.arange(4.0)}, path)
    file = safe_open(path, "np")
    assert file.__enter__() is file
    part = file.get_slice("a")
    array = file.get_tensor("a")
    assert file.__exit__(None, None, None) is None  # type: ignore[func-returns-value]
    for call in (file.keys, file.offset_keys, file.metadata, file.get_tensors):
        with pytest.raises(SafetensorError, match="^File is closed$"):
            call()
    with pytest.raises(SafetensorError, match="^File is closed$"):
        file.get_tensor("a")
    assert part[1:3].tolist() == [1, 2] and part.get_shape() == [4] and array.tolist() == [0, 1, 2, 3]


def test_names_in_files_are_kept(path: str) -> None:
    names = ["", "a", "a.b", "a..b.", "a\\.b", "0", "é", "a/b", '"', "\U0001f600", " "]
    tensors = {name: np.array([i], "i4") for i, name in enumerate(names)}
    assert save(tensors) == original_numpy.save(tensors)
    assert {name: int(array[0]) for name, array in load(save(tensors)).items()} == {n: i for i, n in enumerate(names)}


@pytest.mark.parametrize("name", ["model", ".hidden", "__params__", "v1", "x.gguf", "x.npz", "-", "a b.safetensors"])
def test_the_file_has_the_given_name(inside: Path, name: str) -> None:
    for value in (1, 2):
        save_file({"a": np.full(2, value)}, name)
        assert [p.name for p in inside.iterdir()] == [name]
        assert load_file(name)["a"][0] == value
        assert original_numpy.load_file(f"./{name}")["a"][0] == value


def test_paths(path: str) -> None:
    save_file({"a": np.zeros(1)}, Path(path))
    assert list(load_file(Path(path))) == ["a"]
    for bad in (path.encode(), 3, None, 1.5):
        with pytest.raises(TypeError):
            safe_open(bad, "np")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            save_file({"a": np.zeros(1)}, bad)  # type: ignore[arg-type]


def test_handle(path: str) -> None:
    save_file({"a": np.zeros(1)}, path)
    with open(path) as stream, drop_in._safe_open_handle(stream, framework="np", device="cpu") as file:
        assert file.keys() == ["a"]
    with pytest.raises(AttributeError):
        drop_in._safe_open_handle("x", "np")


@pytest.mark.parametrize("backend", BACKENDS)
def test_unaligned_tensors(path: str, backend: str) -> None:
    write(path, {"b": entry("U8", [1], 0, 1), "a": entry("F32", [2, 3], 1, 25)}, b"x" + DATA)
    with safe_open(path, "np", backend=backend) as file:
        assert file.get_tensor("a").tobytes() == DATA and file.get_slice("a")[1, 1:].tolist() == [4, 5]


def test_a_slice_reads_only_its_part(path: str) -> None:
    save_file({"a": np.zeros((64, 1 << 18), "f4")}, path)  # 64 MiB
    with safe_open(path, "np", backend="pread") as file:
        part = file.get_slice("a")
        part[0]
        before = read_so_far()
        assert part[3:5].shape == (2, 1 << 18)
        assert read_so_far() - before < 4 << 20


def read_so_far() -> int:
    """Returns the number of bytes that this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_threads(path: str) -> None:
    save_file({str(i): np.full(1000, i) for i in range(50)}, path)
    failed = []
    with safe_open(path, "np") as file:

        def work() -> None:
            for name in file.keys():
                if not (file.get_tensor(name) == int(name)).all() or (file.get_slice(name)[5:7] != int(name)).any():
                    failed.append(name)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


# --- slices ---

INDICES = st.one_of(
    st.integers(-7, 7),
    # Slices that end before they begin raise SystemError, ValueError or MemoryError in safetensors.
    st.builds(slice, *[st.none() | st.integers(*ends) for ends in ((0, 7), (0, 7), (1, 3))]).filter(
        lambda s: (s.start or 0) <= (7 if s.stop is None else s.stop)
    ),
    st.just(...),
    st.booleans(),
)


@hypothesis.given(st.one_of(INDICES, st.lists(INDICES, max_size=4).map(tuple)))
def test_slices_are_those_of_safetensors(slice_files: Any, index: Any) -> None:
    theirs, ours = slice_files

    def outcome(part: Any) -> Any:
        try:
            array = part[index]
        except (original.SafetensorError, SafetensorError) as error:
            return str(error)
        return array.shape, array.tolist(), array.flags.c_contiguous, array.flags.writeable

    expected = outcome(theirs)
    for part in ours:
        found = outcome(part)
        if isinstance(expected, str) and expected.endswith("of size 0"):  # a negative number beyond the last axis
            assert "more slicing indexes than dimensions" in found
        else:
            assert found == expected


@pytest.fixture(scope="module")
def slice_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = str(tmp_path_factory.mktemp("slices") / "x.safetensors")
    save_file({"a": np.arange(60, dtype=np.int32).reshape(3, 5, 4)}, path)
    yield (
        original.safe_open(path, "np").get_slice("a"),
        [safe_open(path, "np", backend=backend).get_slice("a") for backend in BACKENDS],
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_slices_beyond_safetensors(path: str, backend: str) -> None:
    array = np.arange(12).reshape(3, 4)
    save_file({"a": array, "s": np.array(3.0), "e": np.zeros((0, 2))}, path)
    with safe_open(path, "np", backend=backend) as file:
        part = file.get_slice("a")
        assert np.array_equal(part[-2:, :-1], array[-2:, :-1])  # OverflowError in safetensors
        assert part[2:1].shape == (0, 4)  # SystemError in safetensors
        assert file.get_slice("s")[()].shape == () and file.get_slice("s")[...] == 3
        assert file.get_slice("e")[:, 1].shape == (0,)
        for index in ([0, 1], np.array([0]), None, 1.5, "a", (0, [1]), slice(None, None, -1), (..., ...)):
            with pytest.raises(SafetensorError) as info:
                part[index]
            assert info.value.path == "a" and info.value.file == path


# --- errors ---


def test_errors_have_attributes(path: str) -> None:
    write(path, ONE, DATA[:10])
    with pytest.raises(SafetensorError, match="^Error while deserializing header: ") as info:
        safe_open(path, "np")
    error = info.value
    assert isinstance(error, stele.FormatError) and isinstance(error, Exception)
    assert (error.code, error.path, error.file) == ("truncated", "a", path)
    assert error.offset == 8 + len(json.dumps(ONE)) and "24" in error.expected and "10" in error.found
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.code == error.code


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "too short for a header: expected at least 8 bytes, found 0"),
        (b"abc", "too short for a header"),
        (struct.pack("<Q", 5000) + b"{}", "ends inside the header: expected 5000 bytes, found 2"),
        (struct.pack("<Q", 1 << 40) + b"{}", "header is too large"),
        (struct.pack("<Q", 3) + b"[1]", "not a JSON object"),
        (struct.pack("<Q", 9) + b"{bad json", ""),
        (struct.pack("<Q", 7) + b'{"\xff":1}'[:7], ""),
        (b"GGUF\3\0\0\0" + bytes(16), "the format safetensors, found gguf"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "git lfs pull"),
    ],
)
def test_files_that_are_not_safetensors(content: bytes, text: str, tmp_path: Path) -> None:
    for name in ("x", "x.safetensors", "x.gguf"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SafetensorError) as info:
            safe_open(tmp_path / name, "np")
        assert text in str(info.value) and str(info.value).startswith("Error while deserializing header: ")
        with pytest.raises(original.SafetensorError):
            original.safe_open(tmp_path / name, "np")
    for call in (load, deserialize):
        with pytest.raises(SafetensorError) as info:
            call(content)
        assert text in str(info.value) and str(info.value).startswith("Error while deserializing: ")


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": entry("X9", [2, 3], 0, 24)}, DATA),
        ({"a": entry("F32", [2, 3], 4, 28)}, DATA + b"1234"),
        ({"a": entry("F32", [2, 3], 0, 20)}, DATA[:20]),
        (ONE, DATA + b"x"),
        ({"a": entry("F32", [1 << 40, 1 << 40], 0, 24)}, DATA),
        ({"a": {"dtype": "F32", "shape": [6]}}, DATA),
        ({"__metadata__": {"a": 1}, **ONE}, DATA),
    ],
)
def test_bad_headers(path: str, header: Any, data: bytes) -> None:
    write(path, header, data)
    for module, error in ((original, original.SafetensorError), (drop_in, SafetensorError)):
        with pytest.raises(error):
            module.safe_open(path, "np")
        with pytest.raises(error):
            module.deserialize(Path(path).read_bytes())


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for missing in ("notafile", "", "a\0b", str(tmp_path / "x" / "y")):
        with pytest.raises(FileNotFoundError) as info:
            safe_open(missing, framework="np")
        assert str(info.value) == f"No such file or directory: {missing}"
    for other in (str(tmp_path), "/dev/null"):
        with pytest.raises(OSError):
            safe_open(other, framework="np")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileNotFoundError):
        safe_open(str(tmp_path / "file" / "x"), "np")


def test_arguments(path: str) -> None:
    save_file({"a": np.zeros(1)}, path)
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("xx", {}, "framework xx is invalid"),
        ("np", {"device": "cuda"}, "Device cuda:0 is not supported for framework numpy"),
        ("np", {"device": 1}, "Device 1 is not supported for framework numpy"),
        ("np", {"device": "foo"}, "device foo is invalid"),
        ("np", {"device": "cuda:x"}, "device cuda:x is invalid"),
        ("np", {"device": -1}, "device -1 is invalid"),
        ("np", {"device": "mps:1"}, "device mps:1 is invalid: only mps or mps:0 is supported"),
        ("np", {"backend": "x"}, 'backend "x" is invalid (expected one of: "mmap", "pread")'),
    ]
    for framework, options, text in cases:
        with pytest.raises(SafetensorError) as info:
            safe_open(path, framework, **options)
        assert str(info.value) == text
    wrong: list[dict[str, Any]] = [{}, {"framework": None}, {"framework": "np", "backend": None}]
    for options in wrong:
        with pytest.raises(TypeError):
            safe_open(path, **options)
    assert safe_open(path, "np", None).keys() == ["a"]
    file = safe_open(path, "np")
    for call in (file.get_tensor, file.get_slice):
        with pytest.raises(SafetensorError, match="^File does not contain tensor zz$") as missing:
            call("zz")
        assert (missing.value.code, missing.value.path, missing.value.file) == ("not_found", "zz", path)
        with pytest.raises(TypeError):
            call(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "dtype", ["complex128", "O", "U3", "M8[s]", "longdouble", [("x", "f4")], ml_dtypes.int4, ml_dtypes.float8_e3m4]
)
def test_dtypes_that_files_cannot_hold(dtype: Any) -> None:
    with pytest.raises(SafetensorError, match="Unknown dtype") as info:
        save({"name": np.zeros(2, dtype)})
    assert info.value.path == "name"


def test_arguments_of_saves(path: str) -> None:
    array = np.zeros(1)
    tensors: Any
    for tensors in ([array], {1: array}, {"a": [1, 2]}, {"a": {"b": array}}, {"a": None}, {"a": 1.5}):
        with pytest.raises(TypeError):
            save(tensors)
    metadata: Any
    for metadata in ({"x": 1}, {1: "x"}, [("a", "b")], "text"):
        with pytest.raises(TypeError):
            save_file({"a": array}, path, metadata)
    with pytest.raises(SafetensorError, match="__metadata__"):
        save({"__metadata__": array})  # safetensors writes a file that nothing opens
    assert not os.path.exists(path)


# --- saves are one step ---


def test_a_failed_save_keeps_the_file(path: str, tmp_path: Path) -> None:
    save_file({"a": np.ones(3)}, path)
    before = Path(path).read_bytes()
    with pytest.raises(SafetensorError):
        save_file({"a": np.ones(3), "\udc80": np.ones(3)}, path)
    assert Path(path).read_bytes() == before and os.listdir(tmp_path) == ["model.safetensors"]


def test_a_save_keeps_loaded_tensors(path: str) -> None:
    save_file({"a": np.ones(3)}, path)
    file = safe_open(path, "np")
    save_file({"a": np.zeros(5)}, path)
    assert file.get_tensor("a").tolist() == [1, 1, 1] and load_file(path)["a"].shape == (5,)


@pytest.mark.parametrize("name", ["none/x.safetensors", "none/x", ".", "file/x"])
def test_places_that_cannot_be_written(inside: Path, name: str) -> None:
    (inside / "file").write_bytes(b"old")
    with pytest.raises(SafetensorError) as info:
        save_file({"a": np.zeros(1)}, name)
    assert isinstance(info.value, OSError) or name == "."
    assert os.listdir(inside) == ["file"] and (inside / "file").read_bytes() == b"old"


def test_a_rename_that_fails_leaves_nothing(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SafetensorError, match="Operation not permitted: model"):
        save_file({"a": np.zeros(1)}, "model")
    assert os.listdir(inside) == []


# --- raw memory ---


def spec_of(array: Array, **changed: Any) -> TensorSpec:
    values = {"dtype": array.dtype.name, "shape": array.shape, "data_ptr": array.ctypes.data, "data_len": array.nbytes}
    return TensorSpec(**{**values, **changed})


def test_tensor_spec() -> None:
    spec = TensorSpec(dtype="float4_e2m1fn_x2", shape=(2, 2), data_ptr=5, data_len=4)
    assert (spec.dtype, spec.shape, spec.data_ptr, spec.data_len) == ("F4", [2, 4], 5, 4)
    assert repr(spec) == "TensorSpec(dtype='F4', shape=[2, 4], data_ptr=5, data_len=4)"
    with pytest.raises(AttributeError):
        spec.shape = [1]  # type: ignore[misc]
    with pytest.raises(TypeError):
        TensorSpec("float32", [2], 0, 8)  # type: ignore[call-arg]
    whole: dict[str, Any] = dict(dtype="float32", shape=[2], data_ptr=0, data_len=8)
    for changed, error in (
        ({"dtype": "nonsense"}, SafetensorError),
        ({"dtype": "F32"}, SafetensorError),
        ({"dtype": None}, TypeError),
        ({"shape": [-1]}, OverflowError),
        ({"shape": "ab"}, TypeError),
        ({"shape": [1.5]}, TypeError),
        ({"data_ptr": -1}, OverflowError),
        ({"data_len": 1 << 64}, OverflowError),
    ):
        with pytest.raises(error):
            TensorSpec(**{**whole, **changed})


@pytest.mark.parametrize("name", list(SPEC_DTYPES))
def test_serialize(name: str, path: str) -> None:
    memory = np.arange(24, dtype=np.uint8) % 2
    size = BITS[SPEC_DTYPES[name]] / 8
    shape = [24 if name == "float4_e2m1fn_x2" else int(24 / size)]
    arguments: dict[str, Any] = dict(dtype=name, shape=shape, data_ptr=memory.ctypes.data, data_len=24)
    expected = original.serialize({"x": original.TensorSpec(**arguments)}, {"k": "v"})
    assert serialize({"x": TensorSpec(**arguments)}, {"k": "v"}) == expected
    serialize_file({"x": TensorSpec(**arguments)}, path, metadata={"k": "v"})
    assert Path(path).read_bytes() == expected
    assert deserialize(expected) == original.deserialize(expected)


def test_serialize_checks_the_memory(path: str) -> None:
    array = np.zeros(2, "f4")
    for changed in ({"data_len": 4}, {"shape": [3]}, {"data_ptr": 0}, {"dtype": "float64"}):
        with pytest.raises(SafetensorError, match="do not fit together") as info:
            serialize_file({"x": spec_of(array, **changed)}, path)
        assert info.value.path == "x"
    empty = TensorSpec(dtype="float32", shape=[0], data_ptr=0, data_len=0)
    assert serialize({"x": empty}) == original_numpy.save({"x": np.zeros(0, "f4")})
    for bad in ({"x": {"dtype": "float32"}}, [1], {1: spec_of(array)}):
        with pytest.raises(TypeError):
            serialize(bad)  # type: ignore[arg-type]


def test_buffers() -> None:
    data = save({"a": np.arange(3)})
    for buffer in (data, bytearray(data), memoryview(data)):
        assert load(buffer)["a"].tolist() == [0, 1, 2]  # type: ignore[arg-type]
        ((name, item),) = deserialize(buffer)
        assert (name, item["shape"], item["dtype"], type(item["data"])) == ("a", [3], "I64", bytearray)
    with pytest.raises(TypeError):
        load("text")  # type: ignore[arg-type]


# --- files of this library with more than tensors ---


def test_ties_and_values(path: str) -> None:
    stele.save({"z": np.ones(3), "n": 3}, path, ties={"a": "z"}, metadata={"k": "v"})
    with safe_open(path, "np") as file:
        assert file.keys() == ["a", "z"] and file.metadata() == {"k": "v"}
        assert file.get_tensor("a").tolist() == [1, 1, 1]
    stele.save({"z": np.ones(3), "n": 3}, path)
    assert safe_open(path, "np").metadata() == {}


# --- torch ---


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def pt(torch: Any) -> Any:
    return importlib.import_module("stele.safetensors.torch")


@pytest.fixture(scope="module")
def original_pt(torch: Any) -> Any:
    return importlib.import_module("safetensors.torch")


def torch_sample(torch: Any, name: str) -> Any:
    bits = torch.from_numpy(np.random.default_rng(1).integers(0, 2, 48).astype(np.uint8))
    return bits.view(getattr(torch, name)).reshape(2, 3, -1)


def same(torch: Any, a: Any, b: Any) -> bool:
    def raw(t: Any) -> Any:
        return t.contiguous().reshape(-1).view(torch.uint8)

    return bool(a.dtype == b.dtype and a.shape == b.shape and torch.equal(raw(a), raw(b)))


@pytest.mark.parametrize("name", list(SPEC_DTYPES))
def test_torch_dtypes(name: str, path: str, torch: Any, pt: Any, original_pt: Any) -> None:
    if not hasattr(torch, name):
        pytest.skip(f"torch without {name}")
    sample = torch_sample(torch, name)
    tensors = {"b": sample, "a": sample[0].clone(), "e": sample[:0].clone()}
    expected = original_pt.save(tensors, {"k": "v"})
    assert pt.save(tensors, {"k": "v"}) == expected
    pt.save_file(tensors, path, {"k": "v"})
    assert Path(path).read_bytes() == expected
    loads: list[Callable[[], dict[str, Any]]] = [
        lambda: pt.load(expected),
        lambda: pt.load_file(path),
        lambda: pt.load_file(path, backend="pread"),
        lambda: safe_open(path, "pt", device="cpu").get_tensors(),
        lambda: {name: safe_open(path, "torch").get_tensor(name) for name in tensors},
        lambda: {name: safe_open(path, "pytorch", backend="pread").get_tensor(name) for name in tensors},
        lambda: {name: safe_open(path, "pt").get_slice(name)[:] for name in tensors},
        lambda: original_pt.load_file(path),
    ]
    for load_all in loads:
        found = load_all()
        assert all(same(torch, found[name], tensor) for name, tensor in tensors.items())
    if name != "float4_e2m1fn_x2":
        part = safe_open(path, "pt", backend="pread").get_slice("b")[1:, 0]
        assert same(torch, part, tensors["b"][1:, 0])


def test_torch_signatures(pt: Any, original_pt: Any) -> None:
    for name in ("save", "save_file", "load", "load_file", "save_model", "load_model"):
        ours, theirs = (inspect.signature(getattr(m, name)).parameters.values() for m in (pt, original_pt))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name
    used = {name for name in vars(original_pt) if not name.startswith("__")}
    internal = {"Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "defaultdict", "sys"}
    internal |= {n for n in used if n.startswith(("_float", "_flat", "_view", "_to_", "_eval", "_filter"))}
    assert used - internal <= set(vars(pt)), used - internal - set(vars(pt))
    assert pt._TYPES.keys() >= original_pt._TYPES.keys()
    assert all(pt._SIZE[dtype] == size for dtype, size in original_pt._SIZE.items() if dtype)


def test_torch_views_share_one_mapping(path: str, torch: Any, pt: Any) -> None:
    pt.save_file({str(i): torch.full((100,), float(i)) for i in range(300)}, path)
    before = Path(path).read_bytes()
    with safe_open(path, "pt") as file:
        first, again = file.get_tensor("7"), file.get_tensor("7")
        part = file.get_slice("7")[10:20]
        others = [file.get_tensor(name) for name in file.keys()]
    assert first.data_ptr() == again.data_ptr() and part.data_ptr() == first.data_ptr() + 40
    mappings = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(path)]
    assert 1 <= len(mappings) <= 3, mappings
    first[:] = -1
    assert (again == -1).all() and Path(path).read_bytes() == before
    assert [int(t[0]) for t in others if t[0] != -1] == [int(n) for n in sorted(map(str, range(300))) if n != "7"]
    pread = safe_open(path, "pt", backend="pread")
    assert pread.get_tensor("7").data_ptr() != pread.get_tensor("7").data_ptr()
    assert pt._find_shared_tensors(pt.load_file(path)) == [{name} for name in pt.load_file(path)]
    pt.save_file(pt.load_file(path), path)  # over the mapped file
    assert Path(path).read_bytes() == before


def test_torch_slices(path: str, torch: Any, pt: Any) -> None:
    tensor = torch.arange(24).reshape(4, 6)
    pt.save_file({"a": tensor}, path)
    part = safe_open(path, "pt").get_slice("a")
    lists: list[Any] = [[0, 2], torch.tensor([1]), (slice(None), [0, 1])]
    for index in (0, slice(-2, None), slice(0, 99), None, (..., 1), True, *lists):
        assert same(torch, part[index], tensor[index])
    with pytest.raises(IndexError):
        part[9]
    part = safe_open(path, "pt", backend="pread").get_slice("a")
    assert same(torch, part[1:3, ::2], tensor[1:3, ::2])
    with pytest.raises(SafetensorError, match="index 98 out of bounds"):
        part[:99]


def test_torch_conjugates_and_negatives(torch: Any, pt: Any) -> None:
    tensors = {"c": torch.tensor([1 + 2j]).conj(), "n": torch._neg_view(torch.tensor([1.0, 2.0]))}
    loaded = pt.load(pt.save(tensors))  # safetensors stores 1+2j and [1, 2]
    assert loaded["c"].item() == 1 - 2j and loaded["n"].tolist() == [-1, -2]


def test_torch_tensors_that_are_refused(path: str, torch: Any, pt: Any) -> None:
    whole = torch.zeros(4, 4)
    refused: list[tuple[Any, type[Exception], str]] = [
        ({"a": whole, "b": whole}, RuntimeError, "share memory"),
        ({"a": whole, "b": whole[1:]}, RuntimeError, "share memory"),
        ({"a": whole.t()}, ValueError, "non contiguous tensor: `a`"),
        ({"a": whole[:, 1]}, ValueError, "non contiguous"),
        ({"a": whole.to_sparse()}, ValueError, r"sparse tensors: `\['a'\]`"),
        ({"a": np.zeros(1)}, ValueError, "Key `a` is invalid, expected torch.Tensor"),
        ("notadict", ValueError, "Expected a dict"),
        ({1: whole}, TypeError, "must be str"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, SafetensorError, "Unknown dtype"),
        ({"a": torch.zeros(2, device="meta")}, RuntimeError, "Cannot copy out of meta tensor"),
    ]
    for tensors, error, text in refused:
        with pytest.raises(error, match=text):
            pt.save_file(tensors, path)
        with pytest.raises(error, match=text):
            pt.save(tensors)
    assert not os.path.exists(path)
    pt.save_file({"a": whole[:2], "b": whole[2:]}, path)  # parts of one storage that do not overlap
    assert pt.load_file(path)["b"].shape == (2, 4)


def test_torch_devices(path: str, torch: Any, pt: Any) -> None:
    pt.save_file({"a": torch.ones(2, 3)}, path)
    for device in ("cpu", "cpu:0", torch.device("cpu"), None):
        assert pt.load_file(path, device=device)["a"].device == torch.device("cpu")
    with torch.device("meta"):
        assert pt.load_file(path)["a"].device == torch.device("cpu")
        assert pt.load_file(path, backend="pread")["a"].device == torch.device("cpu")
    assert pt.load_file(path, device="meta")["a"].device.type == "meta"
    with pytest.raises(SafetensorError, match="device foo is invalid"):
        pt.load_file(path, device="foo")


def test_torch_staging_of_gpu_loads(path: str, torch: Any, pt: Any) -> None:
    tensors = {name: torch_sample(torch, name) for name in SPEC_DTYPES if hasattr(torch, name)}
    tensors["empty"], tensors["scalar"] = torch.zeros(0, 2), torch.tensor(3.0)
    pt.save_file(tensors, path)
    reader = safe_open(path, "pt")._opened()
    for name, tensor in tensors.items():
        assert same(torch, reader._pinned(reader.find(name), pin=False), tensor)


def models(torch: Any) -> Any:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, tied: bool = True) -> None:
            super().__init__()
            self.a = torch.nn.Linear(4, 4)
            self.b = self.a if tied else torch.nn.Linear(4, 4)

    return Net


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_models(path: str, backend: str, torch: Any, pt: Any, original_pt: Any) -> None:
    net = models(torch)
    model, other = net(), net()
    metadata = {"k": "v"}
    pt.save_model(model, path, metadata)
    assert metadata == {"k": "v"}  # safetensors adds its notes to the caller's dict
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"k": "v", "b.bias": "a.bias", "b.weight": "a.weight"}
        assert file.keys() == ["a.bias", "a.weight"]
    for target in (pt, original_pt):
        other = net()
        assert target.load_model(other, path, backend=backend) == (set(), [])
        assert torch.equal(other.b.weight, model.b.weight)
    loose = net(tied=False)
    with pytest.raises(RuntimeError, match='Missing key.*"b.bias", "b.weight"'):
        pt.load_model(loose, path)
    assert pt.load_model(loose, path, strict=False) == ({"b.bias", "b.weight"}, [])
    pt.save_model(loose, path)
    with pytest.raises(RuntimeError, match='Unexpected key.*"b.bias", "b.weight"'):
        pt.load_model(model, path)
    transposed = net()
    transposed.a.weight = torch.nn.Parameter(torch.rand(4, 4).t())
    with pytest.raises(ValueError, match=r"use save_model\(..., force_contiguous=True\)"):
        pt.save_model(transposed, path, force_contiguous=False)
    pt.save_model(transposed, path)
    pt.load_model(other, path)
    assert torch.equal(other.a.weight, transposed.a.weight)


def test_torch_ties_that_the_metadata_name(path: str, torch: Any, pt: Any, original_pt: Any) -> None:
    """stele has the tie; the package's functions show what the package shows, and write what it writes."""
    net = models(torch)
    written = []
    for writer in (pt, original_pt):
        writer.save_model(net(), path, {"b.bias": "mine"})
        assert set(stele.open(path)) == {"a.bias", "a.weight", "b.weight"}
        assert set(pt.load_file(path)) == set(original_pt.load_file(path)) == {"a.bias", "a.weight"}
        with safe_open(path, "pt") as file:
            assert file.keys() == sorted(file.offset_keys()) == ["a.bias", "a.weight"]
            assert file.metadata() == {"b.bias": "mine", "b.weight": "a.weight"}
            with pytest.raises(SafetensorError, match="b.weight"):
                file.get_tensor("b.weight")
        with open(path, "rb") as stream:
            written.append(json.loads(stream.read(int.from_bytes(stream.read(8), "little"))))
    assert written[0] == written[1]


def test_torch_model_with_ties_in_the_file(path: str, torch: Any, pt: Any) -> None:
    net = models(torch)
    model = net()
    stele.save(dict(model.state_dict()), path)
    with safe_open(path, "pt") as file:
        assert file.keys() == ["a.bias", "a.weight", "b.bias", "b.weight"]
    for other in (net(), net(tied=False)):
        assert pt.load_model(other, path) == (set(), [])
        assert torch.equal(other.b.weight, model.a.weight)


def test_torch_shared_tensors(torch: Any, pt: Any, original_pt: Any) -> None:
    a = torch.zeros(4)
    meta = torch.zeros(2, device="meta")
    for tensors in (
        {"a": a, "b": a[:2]},
        {"b": a[:2], "c": a[2:]},
        {"b": a[:2], "c": a[2:], "d": a[:1]},
        {"b": a[:2], "c": a[1:]},
        {"m": meta, "n": meta[:1]},
        {"x": torch.zeros(0), "y": torch.zeros(0)},
        {"a": a, "c": torch.zeros(2), "b": a},
    ):
        assert pt._find_shared_tensors(tensors) == original_pt._find_shared_tensors(tensors)
    for arguments in ({}, {"preferred_names": ["b"]}, {"discard_names": ["a"]}, {"preferred_names": ["zz"]}):
        tensors = {"a": a, "b": a, "c": a[:1]}
        expected = original_pt._remove_duplicate_names(tensors, **arguments)
        assert pt._remove_duplicate_names(tensors, **arguments) == expected
    with pytest.raises(RuntimeError, match="whole storage"):
        pt._remove_duplicate_names({"a": a[:1], "b": a[:2]})
    strided = torch.zeros(16)[::4]
    assert pt._end_ptr(strided) == original_pt._end_ptr(strided) == strided.data_ptr() + 13 * 4
    square = torch.zeros(3, 3)
    assert pt._end_ptr(square.t()) == square.data_ptr() + 36  # safetensors: RuntimeError, for view(-1)


def test_torch_pairs_of_f4(path: str, torch: Any, pt: Any) -> None:
    write(path, {"six": entry("F6_E2M3", [4], 0, 3), "odd": entry("F4", [2, 3], 3, 6)}, b"abcdef")
    for backend in BACKENDS:
        with safe_open(path, "pt", backend=backend) as file:
            with pytest.raises(SafetensorError, match="pairs of F4"):
                file.get_tensor("odd")
            with pytest.raises(SafetensorError, match="Dtype not understood: F6_E2M3"):
                file.get_tensors()


# --- other frameworks, where they are installed ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_flax(path: str, backend: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    flax = importlib.import_module("stele.safetensors.flax")
    tensors = {"b": jnp.ones((2, 3), jnp.bfloat16), "a": jnp.arange(6).reshape(2, 3).T, "s": jnp.float32(2)}
    given = dict(tensors)
    flax.save_file(tensors, path, {"k": "v"})
    assert all(tensors[name] is given[name] for name in given)  # safetensors replaces the values in the caller's dict
    assert Path(path).read_bytes() == flax.save(tensors, {"k": "v"})
    for found in (flax.load_file(path, backend=backend), flax.load(flax.save(tensors))):
        assert all(equal_bits(found[name], np.asarray(tensor)) for name, tensor in tensors.items())
    with safe_open(path, "jax", backend=backend) as file:
        assert file.get_slice("b")[1:].shape == (1, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_paddle(path: str, backend: str) -> None:
    paddle = pytest.importorskip("paddle")  # before tensorflow: importing it after that crashes
    module = importlib.import_module("stele.safetensors.paddle")
    tensors = {
        "a": paddle.arange(6).reshape([2, 3]),
        "b": paddle.ones([2, 3]).astype("bfloat16"),
        "f": paddle.ones([4]).astype("float8_e4m3fn"),
        "e": paddle.zeros([0, 2]),
        "s": paddle.to_tensor(2.0),
        "t": paddle.to_tensor([True, False]),
    }
    module.save_file(tensors, path)
    assert Path(path).read_bytes() == importlib.import_module("safetensors.paddle").save(tensors)
    for found in (module.load_file(path, backend=backend), module.load(module.save(tensors))):
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            assert (found[name].astype("float32").numpy() == tensor.astype("float32").numpy()).all()
    with safe_open(path, "paddle", backend=backend) as file:
        assert file.get_slice("b")[1:].dtype == paddle.bfloat16
    with pytest.raises(ValueError, match="non contiguous"):
        module.save({"a": paddle.as_strided(paddle.arange(6), [2], [2])})
    with pytest.raises(ValueError, match="Expected a dict"):
        module.save([1])
    with pytest.raises(ValueError, match="Key `a` is invalid"):
        module.save({"a": 1})


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensorflow(path: str, backend: str) -> None:
    tf = pytest.importorskip("tensorflow")
    module = importlib.import_module("stele.safetensors.tensorflow")
    tensors = {"b": tf.ones((2, 3), tf.bfloat16), "a": tf.reshape(tf.range(6), (2, 3)), "s": tf.constant(2.0)}
    module.save_file(tensors, path)
    for found in (module.load_file(path, backend=backend), module.load(module.save(tensors))):
        assert all(equal_bits(found[name].numpy(), tensor.numpy()) for name, tensor in tensors.items())
    with safe_open(path, "tf", backend=backend) as file:
        assert file.get_slice("a")[:, :2].shape == (2, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_mlx(path: str, backend: str) -> None:
    mx = pytest.importorskip("mlx.core")
    module = importlib.import_module("stele.safetensors.mlx")
    tensors = {"a": mx.arange(6).reshape(2, 3), "t": mx.arange(6.0).reshape(2, 3).T}
    module.save_file(tensors, path)
    for found in (module.load_file(path, backend=backend), module.load(module.save(tensors))):
        assert all(equal_bits(np.asarray(found[name]), np.asarray(tensor)) for name, tensor in tensors.items())


def test_missing_frameworks(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": np.zeros(1)}, path)
    for framework, module in (("tf", "tensorflow"), ("jax", "jax.numpy"), ("mlx", "mlx.core"), ("paddle", "paddle")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        file = safe_open(path, framework)
        with pytest.raises(ImportError):
            file.get_tensor("a")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ImportError):
        safe_open(path, "pt")


def test_numpy_dtypes_are_those_of_the_table() -> None:
    for dtype in DTYPES:
        assert BITS[dtype] == 8 * numpy_dtype(dtype).itemsize or dtype in PACKED
