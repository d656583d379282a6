"""The functions that take files, beside the command of the same name."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SHARED, equal_bits, protobuf, run_python, sample

import stele

A = {
    "enc.w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "enc.b": np.float32([1, 2]),
    "dec.w": np.ones((2, 32), np.float32),
}


@pytest.fixture
def a(inside: Path) -> Path:
    stele.save(A, "a.safetensors", metadata={"k": "v"})
    return Path("a.safetensors")


def command(*words: str, status: int = 0) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "stele", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == status, result.stderr
    return result.stdout


@functools.cache
def help_of(name: str) -> str:
    return command(name, "--help")


def test_a_plugin_is_loaded(tmp_path: Path) -> None:
    library = Path(stele._stele.__file__).parents[1] / "plugin" / "stele_python_plugin.so"
    if not library.exists():
        pytest.skip("the plug-in of the tests is not built")
    code = """
import sys, numpy as np, stele
stele.load_plugin(sys.argv[1])
stele.load_plugin(sys.argv[1])
assert "tiny" in stele.formats()
stele.save({"a": np.float32([1, 2])}, sys.argv[2] + "/a.tiny")
file = stele.open(sys.argv[2] + "/a.tiny")
assert file.format == "tiny" and file["a"].numpy().tolist() == [1, 2] and stele.verify(file)
stele.convert(file, sys.argv[2] + "/a.npz")
try:
    stele.save({"a": np.zeros(2)}, sys.argv[2] + "/a.tiny")
except stele.FormatError as error:
    print(error.code, error.path)
"""
    assert run_python(code, str(library), str(tmp_path)).stdout == "not_representable a\n"


def test_what_is_no_plugin_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"text")
    for path in (tmp_path / "none.so", tmp_path / "a.so"):
        with pytest.raises(stele.NotFoundError, match="cannot be loaded") as error:
            stele.load_plugin(path)
        assert (error.value.file, error.value.code) == (str(path), "not_found")


# The options of the command that a function lacks, with the reason.
EVERYWHERE = {
    "help": "help() of Python",
    "json": "the functions return objects",
    "quiet": "the functions print nothing",
    "color": "the functions print nothing",
    "plugin": "load_plugin()",
}
LACKING: dict[str, dict[str, str]] = {
    "diff": {"largest": "diff() returns all differences"},
    "hash": {"total": "hash() is --total, hashes() is not"},
    "import_onnx": {
        "signature": "of TensorFlow",
        "tag": "of archives",
        "opset": "of export_onnx",
    },
    "import_tensorflow": {"tag": "of archives", "opset": "of export_onnx"},
    "export_onnx": {
        "shape": "of imports",
        "output": "of imports",
        "signature": "of TensorFlow",
        "mappings": "of imports",
        "to": "is always onnx",
    },
}
PLURAL = {"shape": "shapes", "output": "outputs", "except": "except_"}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        *(
            (getattr(stele, name), name)
            for name in ("convert", "verify", "diff", "hash", "merge", "split", "report", "repair")
        ),
        (stele.hashes, "hash"),
        (stele.import_onnx, "import"),
        (stele.import_tensorflow, "import"),
        (stele.export_onnx, "import"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_option_of_the_command_is_a_parameter(function: Any, name: str) -> None:
    options = set(re.findall(r"^  (?:-\w,)?--([a-z0-9-]+)", help_of(name), re.MULTILINE))
    assert {"help", "json", "threads"} <= options
    lacking = {**EVERYWHERE, **LACKING.get(function.__name__, LACKING.get(name, {}))}
    parameters = inspect.signature(function).parameters
    if name == "import":
        lacking["threads"] = "an import takes milliseconds"
    for option in options - set(lacking):
        assert PLURAL.get(option, option.replace("-", "_")) in parameters, option
    assert set(lacking) - {"largest", "total"} <= options | {"threads"}
    own = {
        parameter for parameter in parameters if parameter not in {PLURAL.get(o, o.replace("-", "_")) for o in options}
    }
    positional = {"source", "target", "path", "a", "b", "files", "out"}
    assert own <= positional, own - positional


@pytest.mark.parametrize(
    ("name", "option", "default"),
    [("split", "levels", 1), ("report", "out", "report.html"), ("import", "opset", 17), ("hash", "algorithm", "xxh3")],
)
def test_defaults_are_those_of_the_command(name: str, option: str, default: Any) -> None:
    function = stele.export_onnx if name == "import" else getattr(stele, name)
    assert inspect.signature(function).parameters[option].default == default
    line = re.findall(rf"--{option} (.*(?:\n {{20,}}.*)*)", help_of(name))[0]
    assert f"({default})" in line or f"{default} (the default)" in line


def test_convert_to_every_format_and_back(a: Path) -> None:
    for format in ("pytorch", "gguf", "npz", "stele", "json.zst", "flax", "onnx", "archive", "burnpack"):
        target = f"b{stele.formats()[format]}"
        report = stele.convert(a, target, allow_loss=True)
        assert isinstance(report, stele.Report)
        stele.convert(target, "c.safetensors")
        with stele.open("c.safetensors") as file:
            assert all(equal_bits(file[name].numpy(), array) for name, array in A.items()), format


def test_options_of_convert(a: Path) -> None:
    report = stele.convert(
        a, Path("b.stele"), precision="f16", only=["enc.*"], rename={r"^(\w+)\.": r"\1_x."}, compress=True
    )
    with stele.open("b.stele") as file:
        assert {name: tensor.dtype_name for name, tensor in file.items()} == {"enc_x.w": "f16", "enc_x.b": "f16"}
    assert report.count("lost") == 0
    stele.convert(a, "c.stele", except_="enc.*", transpose="dec.w")
    with stele.open("c.stele") as file:
        assert list(file) == ["dec.w"] and file["dec.w"].shape == (32, 2)
    report = stele.convert(a, "d.stele", quantize=8)
    assert report.count("quantized") == 3
    assert {tensor.dtype_name for tensor in stele.open("d.stele").values()} <= {"i8", "u8"}
    stele.convert(a, "e", to="stele")
    assert os.path.exists("e.stele")
    assert stele.convert(a, "f.stele", dry_run=True).count("lost") == 0 and not os.path.exists("f.stele")
    stele.convert(a, "g.zip", to_tag="one")
    stele.convert(a, "g.zip", to_tag="two", append=True, only="enc.b")
    assert list(stele.open("g.zip", tag="two")) == ["enc.b"]
    stele.convert("g.zip", "h.stele", tag="one")
    assert len(stele.open("h.stele")) == 3
    stele.convert(a, "i.safetensors.index.json", shard=300)
    assert len([name for name in os.listdir() if name.startswith("i-")]) > 1
    assert len(stele.open("i.safetensors.index.json")) == 3
    stele.convert(a, "j.stele", part="enc")
    assert sorted(stele.open("j.stele")) == ["b", "w"]


def test_a_rule_of_convert_may_have_an_equals_sign_in_its_pattern_alone(inside: Path) -> None:
    stele.save({"a=b": np.ones(1), "c": np.ones(1)}, "a.stele")
    stele.convert("a.stele", "b.stele", rename={"a=b": "d"})
    assert sorted(stele.open("b.stele")) == ["c", "d"]
    with pytest.raises(ValueError, match="cannot have '='"):
        stele.convert("a.stele", "b.stele", rename={"c": "x=y"})
    assert sorted(stele.transforms.rename(stele.open("a.stele"), {"c": "x=y"})) == ["a=b", "x=y"]


def test_the_rules_of_convert_are_those_of_the_transforms(a: Path) -> None:
    rules = {"^enc": "e", "w$": "weight", r"\.": "/"}
    stele.convert(a, "b.stele", rename=rules)
    assert list(stele.open("b.stele")) == list(stele.transforms.rename(stele.open(a), rules))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"quantize": 99}, ValueError),
        ({"precision": "f17"}, ValueError),
        ({"adapt": "word"}, ValueError),
        ({"only": ""}, ValueError),
        ({"only": ["zzz"]}, KeyError),
        ({"to": "word"}, ValueError),
        ({"to_tag": "x"}, ValueError),
        ({"part": "zzz"}, KeyError),
        ({"limit": "much"}, ValueError),
        ({"threads": 9999}, ValueError),
        ({"rename": {"(": "x"}}, ValueError),
        ({"names": "nope.txt"}, FileNotFoundError),
        ({"compress": True, "to": "npz"}, ValueError),
    ],
    ids=str,
)
def test_a_wrong_option_of_convert_is_an_error_and_leaves_no_file(
    a: Path, options: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        stele.convert(a, "b.stele", **options)
    assert os.listdir() == ["a.safetensors"] and "has no option" not in str(raised.value)


def test_convert_replaces_its_input_only_by_all_of_it(a: Path) -> None:
    with stele.open(a) as file:
        stele.convert(a, a)
        assert equal_bits(file["enc.w"].numpy(), A["enc.w"])
    with pytest.raises(ValueError, match="less than all of it"):
        stele.convert(a, a, precision="f16")
    assert stele.diff(a, a).equal and len(stele.open(a)) == 3
    with pytest.raises(FileExistsError):
        stele.convert(a, a, no_clobber=True)


def test_verify(a: Path) -> None:
    result = stele.verify(a)
    assert result and result.ok and result.format == "safetensors" and result.error is None and result.damaged == []
    assert result.unchecked.count("unchecked") > 0  # safetensors has no checksums
    stele.save(A, "b.stele")
    assert stele.verify("b.stele", threads=1).unchecked.count("unchecked") == 0
    data = bytearray(Path("b.stele").read_bytes())
    data[data.index(A["enc.w"].tobytes()) + 5] ^= 1
    Path("b.stele").write_bytes(data)
    result = stele.verify("b.stele")
    assert not result and [row["name"] for row in result.damaged] == ["enc.w"]
    Path("c.stele").write_bytes(data[:-3])
    result = stele.verify("c.stele")
    assert not result and isinstance(result.error, stele.FormatError)
    with pytest.raises(FileNotFoundError):
        stele.verify("none.stele")
    Path("d.stele").write_bytes(b"word")
    assert not stele.verify("d.stele")


def test_diff(a: Path) -> None:
    stele.save({**A, "enc.b": np.float32([1, 2.5]), "new": np.ones(1)}, "b.safetensors", metadata={"k": "w"})
    result = stele.diff(a, "b.safetensors")
    assert (result.equal, result.tensors, result.equal_tensors) == (False, 3, 2)
    rows = {(row.kind, row.name): row for row in result.rows}
    assert set(rows) == {("values", "enc.b"), ("only in B", "new"), ("metadata", "k")}
    values = rows["values", "enc.b"]
    assert (values.max_abs, values.differing, values.count, values.first) == (0.5, 1, 2, 1)
    assert values.max_rel == pytest.approx(0.2) and values.rms == pytest.approx(np.sqrt(0.125))
    assert stele.diff(a, "b.safetensors", atol=0.5, tensors=True, only="enc.*").equal
    assert stele.diff(a, "b.safetensors", rtol=0.3, only=["enc.b"], tensors=True).equal
    stele.convert(a, "c.pt", precision="f16")
    result = stele.diff(a, "c.pt", tensors=True)
    assert not result.equal and {row.kind for row in result.rows} == {"dtype"}
    assert stele.diff(a, "c.pt", tensors=True, ignore_dtype=True).equal
    assert stele.diff(a, a).equal


def test_diff_has_a_row_of_every_kind(inside: Path) -> None:
    odd = np.float32([np.nan, np.inf, 1, -0.0])
    left = {
        "s": np.ones((2, 3)),
        "d": np.ones(2),
        "n": odd,
        "q": np.ones(3),
        "v": 1,
        "t": np.ones(2),
        "c": np.complex64([1j]),
    }
    right = {
        "s": np.ones((3, 2)),
        "d": np.int8([1, 1]),
        "n": odd[::-1],
        "q": 5,
        "v": "x",
        "u": np.ones(2),
        "c": np.complex64([2]),
    }
    stele.save(left, "a.stele", ties={"t2": "t"}, metadata={"m": "1"})
    stele.save({**right, "t": np.ones(2), "t2": np.ones(2)}, "b.stele")
    result = stele.diff("a.stele", "b.stele")
    assert not result.equal and {row.name for row in result.rows} >= {"s", "d", "n", "q", "v", "u", "c", "m"}
    assert all(isinstance(row.kind, str) and row.kind for row in result.rows)


def test_hash_does_not_depend_on_the_format(a: Path) -> None:
    digests = {"xxh3": 16, "xxh64": 16, "sha1": 40, "sha256": 64}
    stele.convert(a, "b.pt")
    stele.save(dict(reversed(A.items())), "c.stele")
    for algorithm, size in digests.items():
        digest = stele.hash(a, algorithm=algorithm)
        assert re.fullmatch(f"[0-9a-f]{{{size}}}", digest)
        assert digest == stele.hash("b.pt", algorithm=algorithm) == stele.hash("c.stele", algorithm=algorithm)
        assert digest in command("hash", "--total", "--algorithm", algorithm, str(a)).split()
        each = stele.hashes(a, algorithm=algorithm)
        assert set(each) == set(A) and all(re.fullmatch(f"[0-9a-f]{{{size}}}", value) for value in each.values())
    assert stele.hash(a, part="enc") != stele.hash(a)
    assert set(stele.hashes(a, part="enc")) == {"w", "b"}


def test_deltas(a: Path) -> None:
    tensors = {name: tensor.numpy().copy() for name, tensor in stele.open(a).items()}
    first = next(iter(tensors))
    tensors[first].reshape(-1)[0] += 1
    stele.save(tensors, "new.safetensors")
    assert isinstance(stele.delta(a, "new.safetensors", "d.stele", allow_loss=True), stele.Report)
    stele.apply(a, "d.stele", "out.safetensors", allow_loss=True)
    assert stele.diff("out.safetensors", "new.safetensors", tensors=True).equal
    stele.delta("new.safetensors", a, "back.stele", allow_loss=True)
    stele.compact(["d.stele", "back.stele"], "none.stele")
    assert stele.verify("none.stele")
    lazily = stele.transforms.apply_delta(stele.open(a), stele.open("d.stele"))
    assert equal_bits(lazily[first].numpy(), tensors[first])
    made = stele.transforms.make_delta(stele.open(a), stele.open("new.safetensors"))
    stele.save(made, "e.stele")
    with pytest.raises(ValueError, match="delta"):
        stele.save(made, "e.safetensors")
    with pytest.raises(ValueError, match="base"):
        stele.apply("new.safetensors", "d.stele", "no.safetensors", allow_loss=True)
    assert not os.path.exists("no.safetensors")


def test_merge_and_split(a: Path) -> None:
    paths = stele.split(a, "p.safetensors")
    assert sorted(paths) == ["p.dec.safetensors", "p.enc.safetensors"] and all(map(os.path.exists, paths))
    report = stele.merge(paths, "m.stele")
    assert isinstance(report, stele.Report)
    assert stele.diff(a, "m.stele", tensors=True).equal
    paths = stele.split(a, "s.stele", size=200)
    assert len(paths) == 2 and all(path.startswith("s-") for path in paths)
    stele.save({f"{x}.{y}.w": np.ones(1) for x in "ab" for y in "cd"}, "deep.stele")
    assert len(stele.split("deep.stele", "k.stele")) == 2 and len(stele.split("deep.stele", "l.stele", levels=2)) == 4
    stele.save({"enc.b": np.zeros(2, np.float32)}, "o.stele")
    with pytest.raises(ValueError, match="enc.b"):
        stele.merge([a, "o.stele"], "n.stele")
    stele.merge([a, Path("o.stele")], "n.stele", overlay=True)
    assert equal_bits(stele.open("n.stele")["enc.b"].numpy(), np.zeros(2, np.float32))
    stele.merge(a, "one.stele")
    assert len(stele.open("one.stele")) == 3


def test_report(a: Path) -> None:
    assert stele.report(a) is None
    assert "<html" in Path("report.html").read_text()
    stele.save({**A, "enc.b": np.zeros(2, np.float32)}, "b.stele")
    stele.report(a, "b.stele", out=Path("c.html"), title="Title & more", tensors=True)
    text = Path("c.html").read_text()
    assert "Title &amp; more" in text and "enc.b" in text


def test_repair(inside: Path) -> None:
    stele.save(A, "a.stele")
    data = bytearray(Path("a.stele").read_bytes())
    data[data.index(A["enc.w"].tobytes()) + 5] ^= 1
    Path("a.stele").write_bytes(data)
    document = stele.repair("a.stele", "b.stele")
    assert document["recovered"] == 2 and [row["name"] for row in document["lost"]] == ["enc.w"]
    assert sorted(stele.open("b.stele")) == ["dec.w", "enc.b"]


def test_import_and_export_of_onnx(inside: Path) -> None:
    folder = SHARED / "fixtures" / "onnx" / "node" / "test_gemm_default_vector_bias"
    if not folder.exists():
        pytest.skip(f"{folder} is missing")
    report = stele.import_onnx(folder / "model.onnx", "a.fb", shapes={"a": [2, 7]}, outputs="y")
    assert isinstance(report, stele.Report)
    assert stele.open("a.fb").format == "samediff" and stele.open("a.fb").checkpoint.has_graph  # type: ignore[union-attr]
    stele.export_onnx("a.fb", "b.onnx", opset=18)
    assert stele.open("b.onnx").format == "onnx"
    stele.import_onnx("b.onnx", "c.fb")
    assert stele.import_onnx("b.onnx", "d.fb", dry_run=True) is not None and not os.path.exists("d.fb")
    with pytest.raises(FileExistsError):
        stele.import_onnx("b.onnx", "c.fb", no_clobber=True)
    with pytest.raises(stele.Error):
        stele.import_onnx("b.onnx", "d.fb", outputs=["none"])
    with pytest.raises(ValueError, match="13 to 22"):
        stele.export_onnx("a.fb", "e.onnx", opset=99)


def graph_def() -> bytes:
    """Returns a frozen graph: y = Relu(x)."""

    def node(name: bytes, op: bytes, inputs: list[bytes], **attributes: bytes) -> bytes:
        data = protobuf(1, name) + protobuf(2, op) + b"".join(protobuf(3, i) for i in inputs)
        for key, value in attributes.items():
            data += protobuf(5, protobuf(1, key.encode()) + protobuf(2, value))
        return protobuf(1, data)

    shape = protobuf(7, protobuf(2, protobuf(1, 2)) + protobuf(2, protobuf(1, 3)))
    return node(b"x", b"Placeholder", [], dtype=protobuf(6, 1), shape=shape) + node(
        b"y", b"Relu", [b"x"], T=protobuf(6, 1)
    )


def test_import_of_tensorflow(inside: Path) -> None:
    Path("a.pb").write_bytes(graph_def())
    report = stele.import_tensorflow("a.pb", "a.fb", outputs=["y"])
    assert isinstance(report, stele.Report) and stele.open("a.fb").format == "samediff"
    stele.import_tensorflow("a.pb", "a.onnx", to="onnx")
    assert stele.open("a.onnx").format == "onnx"
    with pytest.raises(stele.Error):
        stele.import_tensorflow("a.pb", "b.fb", outputs=["none"])
    assert not os.path.exists("b.fb")


def test_the_command_runs_with_python_m(a: Path) -> None:
    assert "enc.w" in command("inspect", str(a))
    assert json.loads(command("inspect", "--json", str(a)))["format"] == "safetensors"
    assert command("--version").startswith("stele " + stele.__version__)
    stele.save({"enc.w": np.ones(1)}, "b.stele")
    assert command("diff", str(a), "b.stele", status=1)
    command("inspect", "none.stele", status=2)


def test_many_names_with_odd_characters_go_through_the_command(inside: Path) -> None:
    names = ['"', "\\", "ä", "\n", "\x01", "=", "-x", "*"]
    stele.save({name: np.float32([i]) for i, name in enumerate(names)}, "a.stele")
    assert set(stele.hashes("a.stele")) == set(names)
    stele.convert("a.stele", "ö b.stele")
    assert sorted(stele.open("ö b.stele")) == sorted(names)
    stele.save({"x": np.ones(1)}, "b.stele")
    assert {row.name for row in stele.diff("a.stele", "b.stele").rows} == {*names, "x"}


def test_names_that_are_not_utf_8_come_from_the_command(inside: Path) -> None:
    stele.save({"a\udcff": np.ones(1), "b": np.ones(1)}, "a.stele")
    assert set(stele.hashes("a.stele")) == {"a\udcff", "b"}
    stele.save({"b": np.ones(1)}, "b.stele")
    assert [row.name for row in stele.diff("a.stele", "b.stele").rows] == ["a\udcff"]
    with pytest.raises(stele.Error) as error:
        stele.convert("a.stele", "c.safetensors")
    assert error.value.path == "a\udcff"


def test_functions_that_take_files_run_beside_each_other(inside: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for i in range(8):
        stele.save({"a": sample("f32", (100, 100), seed=i)}, f"{i}.stele", durability="process")

    def work(i: int) -> str:
        stele.convert(f"{i}.stele", f"{i}.npz")
        assert stele.diff(f"{i}.stele", f"{i}.npz", tensors=True).equal
        return stele.hash(f"{i}.npz")

    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(work, range(8)))
    assert digests == [stele.hash(f"{i}.stele") for i in range(8)] and len(set(digests)) == 8


# --- paths ---

# The functions with their files, "in" or "out"; other arguments of theirs are paths, too.
FUNCTIONS: dict[str, list[str]] = {
    "convert": ["source", "target"],
    "verify": ["path"],
    "diff": ["a", "b"],
    "hash": ["path"],
    "hashes": ["path"],
    "merge": ["files", "out"],
    "delta": ["old", "new", "out"],
    "apply": ["base", "deltas", "out"],
    "compact": ["deltas", "out"],
    "split": ["source", "out"],
    "report": ["a", "b", "out"],
    "repair": ["source", "out"],
    "import_onnx": ["source", "target"],
    "import_tensorflow": ["source", "target"],
    "export_onnx": ["source", "target"],
}
OPTIONS = ("names", "names_a", "names_b", "parameters", "mappings")


def test_the_table_has_every_function_and_path() -> None:
    from stele import _commands

    functions = {
        name for name, function in inspect.getmembers(_commands, inspect.isfunction)
        if function.__module__ == _commands.__name__ and name in stele.__all__
    }  # fmt: skip
    assert functions == set(FUNCTIONS)
    for name, places in FUNCTIONS.items():
        parameters = inspect.signature(getattr(_commands, name)).parameters.values()
        paths = [p.name for p in parameters if re.search(r"\b(Path|Source)\b", str(p.annotation))]
        assert [path for path in paths if path not in OPTIONS] == places


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("wrong", ["list", "tuple", "dict", "set", "int", "None", "generator", "file of bytes", "options"])
def test_what_is_no_path_is_an_error(function: str, wrong: str, inside: Path) -> None:
    stele.save({"weight": np.ones(3)}, "good.stele")
    Path("bad.stele").write_bytes(b"\x93STELE\r\nxxxx")
    os.link("good.stele", "weight")
    values: dict[str, Any] = {
        "list": ["good.stele", "bad.stele"],
        "tuple": ("good.stele",),
        "dict": {"weight": 1},
        "set": {"good.stele"},
        "int": 0,
        "None": None,
        "generator": (name for name in ["good.stele"]),
        "file of bytes": stele.open(Path("good.stele").read_bytes()),
        "options": stele.open("good.stele", parts=True),
    }
    work = getattr(stele, function)
    parameters = inspect.signature(work).parameters
    before = sorted(os.listdir())
    for place in [*FUNCTIONS[function], *(option for option in OPTIONS if option in parameters)]:
        several = place in ("files", "deltas") and wrong in ("list", "tuple", "set", "generator")
        if several or wrong == "None" and (place == "out" or parameters[place].default is None):
            continue
        arguments = {name: "good.stele" for name in FUNCTIONS[function] if parameters[name].default is not None}
        arguments = {**arguments, **{name: "new.stele" for name in ("out", "target") if name in arguments}, place: values[wrong]}
        with pytest.raises(ValueError if wrong == "options" and place not in ("out", "target") else TypeError):
            work(**arguments)
    assert sorted(os.listdir()) == before


def test_an_opened_file_stands_for_its_path(inside: Path) -> None:
    stele.save({"weight": np.zeros(5)}, "o.stele")
    stele.save({"weight": np.ones(3)}, "w.stele")
    os.rename("w.stele", "weight")
    file = stele.open("o.stele")
    assert stele.hash(file) == stele.hash("o.stele") != stele.hash("weight")
    assert stele.verify(file) and stele.diff(file, "o.stele").equal
    os.mkdir("sub")
    os.chdir("sub")
    assert stele.hash(file) == stele.hash("../o.stele")
    stele.merge([file, "../weight"], "m.stele", overlay=True)
    assert stele.open("m.stele")["weight"].shape == (3,)
    stele.save({"weight": np.ones(6)}, "../o.stele")
    with pytest.raises(stele.OperatingSystemError, match="has changed"):
        stele.hash(file)
    with pytest.raises(TypeError, match="not at a path"):
        stele.hash(stele.transforms.filter(file, "*"))
    file.close()
    with pytest.raises(ValueError, match="closed"):
        stele.hash(file)


def test_several_files_are_any_iterable_of_paths(inside: Path) -> None:
    for name in "ab":
        stele.save({name: np.ones(3)}, f"{name}.stele")
    for files in (["a.stele", Path("b.stele")], ("a.stele", b"b.stele"), Path().glob("?.stele"), {"a.stele": 1}.keys() | {"b.stele"}):
        stele.merge(files, "m.safetensors")  # type: ignore[arg-type]
        assert sorted(stele.open("m.safetensors")) == ["a", "b"]
        os.remove("m.safetensors")


@pytest.mark.parametrize("wrong", [{"only": {"a"}}, {"only": {"a": "b"}}, {"to": stele}, {"rename": ["a=b", None]}], ids=str)
def test_an_option_of_another_type_is_an_error(wrong: Any, a: Path) -> None:
    with pytest.raises(TypeError):
        stele.convert(a, "b.npz", **wrong)
    assert not Path("b.npz").exists()


@pytest.mark.parametrize("work", ["verify", "hash", "diff", "convert"])
def test_ctrl_c_in_a_run_of_the_command_ends_nothing_else(work: str, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys, threading, numpy as np, stele
os.chdir(sys.argv[1])
stele.save({{"t": np.zeros(64 << 20, "u1")}}, "b.safetensors", durability="process")
works = {{"verify": lambda: stele.verify("b.safetensors"), "hash": lambda: stele.hash("b.safetensors", algorithm="sha256"),
         "diff": lambda: stele.diff("b.safetensors", "b.safetensors"),
         "convert": lambda: stele.convert("b.safetensors", "c.npz")}}
file, errors, over = stele.open("b.safetensors"), [], False
def others():
    while not over:
        try:
            file["t"].stats()
        except stele.Error as error:
            errors.append(error)
thread = threading.Thread(target=others)
thread.start()
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        works["{work}"]()
except KeyboardInterrupt:
    print("interrupted")
over = True
thread.join()
assert errors == [], errors
assert file["t"].stats()["count"] == 64 << 20 and stele.verify("b.safetensors")
"""
    assert run_python(code, str(tmp_path)).stdout == "interrupted\n"
