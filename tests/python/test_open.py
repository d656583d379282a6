"""Opened files: mappings, options, pickling, and files of other programs."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, ValuesView
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, FORMATS, SHARED, TEST_DATA, WAYS, equal_bits, numpy_dtype, opened
from hypothesis import given
from hypothesis import strategies as st

import stele

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


def test_the_hint_of_a_missing_name_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import difflib

    calls = []
    real = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", lambda *a, **k: calls.append(1) or real(*a, **k))
    file = stele.open(stele.save({f"layers.{i}.w": np.zeros(1) for i in range(3000)}, format="stele"))
    errors = []
    for _ in range(100):
        with pytest.raises(KeyError) as error:
            file["layers.1.W"]
        errors.append(error.value)
    assert calls == []
    assert str(errors[0]) == "not_found: layers.1.W: the file has no tensor of this name; did you mean layers.1.w?"
    assert str(errors[0]).count("did you mean") == 1 == len(calls)
    for other in (pickle.loads(pickle.dumps(errors[1])), copy.copy(errors[2]), errors[3]):
        assert other.hint == "did you mean layers.1.w?" and str(other) == str(errors[0])
    assert len(pickle.dumps(errors[1])) < 1000
    assert file.close() is None and errors[4].hint == "did you mean layers.1.w?"


@pytest.mark.parametrize("way", WAYS)
def test_files_close_without_the_garbage_collector(way: str, tmp_path: Path) -> None:
    file = opened(way, DATA, tmp_path)
    tensor, array = file["a"], file["a"].numpy()
    dict(file.items())
    model = weakref.ref(file._model)
    gc.collect()
    gc.disable()
    try:
        del file
        assert model() is not None and equal_bits(tensor.numpy(), DATA["a"])  # a tensor keeps what it reads
        del tensor, array
        assert model() is None
    finally:
        gc.enable()


def test_a_missing_name_among_many_costs_little() -> None:
    file = stele.open(stele.save({f"layer.{i}.weight": np.float32([1]) for i in range(20_000)}, format="stele"))
    file.get("x")
    assert not any(file.get(f"layer.{i}.bias") for i in range(20_000))


def test_attributes_of_tensors(path: Path) -> None:
    file = stele.open(path)
    tensor = file["b"]
    assert (tensor.name, tensor.dtype_name, tensor.shape, tensor.nbytes) == ("b", "bf16", (2, 3), 12)
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


@pytest.mark.parametrize(("width", "dtype"), [(2, "bf16"), (1, "f8_e4m3fn"), (1, "f8_e8m0")])
def test_elements_of_numpy_without_a_type_get_one(width: int, dtype: str, tmp_path: Path) -> None:
    """np.save writes those of ml_dtypes as V2 and V1."""
    array = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))
    np.savez(tmp_path / "a.npz", a=array)
    np.save(tmp_path / "a.npy", array)
    assert np.load(tmp_path / "a.npy").dtype == np.dtype(f"V{width}")
    option = f"void{width}"
    unreadable = stele.open(tmp_path / "a.npz")["a"].annotations["unreadable"]
    assert f"; set {option}='" in unreadable and "::" not in unreadable
    for name, work in (("a.npy", stele.open), ("a.npz", lambda path: stele.convert(path, tmp_path / "b.safetensors"))):
        path = tmp_path / name
        with pytest.raises(stele.FormatError, match=rf"; set {option}='\w+'") as error:
            work(path)
        assert error.value.code in ("unsupported", "not_representable") and "::" not in str(error.value)
        for value in (dtype, numpy_dtype(dtype), numpy_dtype(dtype).name):
            for source in (path, path.read_bytes()):
                (tensor,) = stele.open(source, **{option: value}).values()
                assert tensor.dtype_name == dtype and equal_bits(tensor.numpy(), array)
        stele.convert(path, tmp_path / "b.stele", **{option: dtype})
        (tensor,) = stele.open(tmp_path / "b.stele").values()
        assert tensor.dtype_name == dtype and equal_bits(tensor.numpy(), array)
        other = pickle.loads(pickle.dumps(stele.open(path, **{option: dtype})))
        assert [tensor.dtype_name for tensor in other.values()] == [dtype]
    for wrong, words in ((dict(void1="word"), "no such dtype"), ({option: "f64"}, "does not fit the array")):
        with pytest.raises(stele.FormatError, match=words):
            stele.open(tmp_path / "a.npy", **wrong)
    with pytest.raises(stele.FormatError, match="only NumPy's files"):
        stele.open(stele.save(DATA, format="stele"), void2="bf16")


# --- pickling ---


def test_a_file_is_pickled_by_its_path(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = stele.open(path.name)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    for other in (pickle.loads(pickle.dumps(file)), copy.copy(file), copy.deepcopy(file)):
        assert other is not file and list(other) == list(file) and equal_bits(other["a"].numpy(), DATA["a"])
    tensor = pickle.loads(pickle.dumps(file["b"]))
    assert (tensor.name, tensor.dtype_name, tensor.shape) == ("b", "bf16", (2, 3)) and equal_bits(tensor.numpy(), DATA["b"])
    both = pickle.loads(pickle.dumps((file["b"], file)))
    both[1].close()
    with pytest.raises(ValueError, match="closed"):
        both[0].numpy()
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
    assert (first.dtype_name, first.shape) == (dtype, shape)
    arrays = file.numpy()
    assert all(arrays[n].shape == t.shape and arrays[n].dtype == numpy_dtype(t.dtype_name) == t.dtype for n, t in file.items())


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
        assert (weight.dtype_name, weight.shape, file.notes) == ("f32", (32, 64), [])
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
