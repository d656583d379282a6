"""The types of the package: mypy --strict, and what a user's type checker infers."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT

import stele

SAMPLE = """
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import stele
import stele.torch

file = stele.open("a.safetensors")
reveal_type(file)
reveal_type(file["a"])
reveal_type(list(file))
reveal_type(file["a"].shape)
reveal_type(file["a"].dtype)
reveal_type(file["a"].dtype_name)
reveal_type(file["a"].numpy())
reveal_type(file["a"].torch())
reveal_type(file.numpy())
reveal_type(file.to_device("cuda:0", ["a"]))
reveal_type(file.metadata)
reveal_type(file.checkpoint)
reveal_type(stele.hash("a"))
reveal_type(stele.diff("a", Path("b")))
reveal_type(stele.verify("a").damaged)
reveal_type(stele.convert("a", "b", only="x", rename={"a": "b"}))
reveal_type(stele.transforms.quantize(file))
reveal_type(stele.CheckpointManager("run").open())
reveal_type(stele.torch.load_file("a"))
with file as opened:
    reveal_type(opened)
mapping: Mapping[str, stele.Tensor] = file
for name, tensor in file.items():
    tensor.read_into(np.empty(tensor.shape))
stele.save({"a": [np.ones(3), 3, "x"], "b": {"c": file["a"]}}, "b.stele", progress=lambda done, total: True)
try:
    stele.open("none")
except stele.NotFoundError as error:
    reveal_type(error.offset)
    reveal_type(error.errno)
stele.open("a", word=1)
stele.save({"a": 1}, "b", quantize=8.5)
"""

REVEALED = [
    "stele._file.File",
    "stele._tensor.Tensor",
    "list[str]",
    "tuple[int, ...]",
    "numpy.dtype[Any]",
    "str",
    "numpy.ndarray[Any, Any]",
    "torch._tensor.Tensor",
    "dict[str, numpy.ndarray[Any, Any]]",
    "dict[str, stele.devices.DeviceTensor]",
    "dict[str, str]",
    "stele._file.Checkpoint | None",
    "str",
    "stele._commands.Differences",
    "list[dict[str, str]]",
    "stele._errors.Report",
    "tuple[stele._file.File, stele._errors.Report]",
    "stele.checkpoints.OpenedStep | None",
    "dict[str, torch._tensor.Tensor]",
    "stele._file.File",
    "int | None",
    "int | None",
]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of mypy --strict for the package, with its stub, and for the sample."""
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    sources = ROOT / "python" / "stele"
    if not sources.exists():
        pytest.skip("the sources of the package are missing")
    folder = tmp_path_factory.mktemp("typing")
    package = folder / "python" / "stele"
    shutil.copytree(sources, package, ignore=shutil.ignore_patterns("__pycache__"))
    stub = Path(stele._stele.__file__).with_name("_stele.pyi")
    if stub.exists():
        shutil.copy(stub, package)
    else:
        pytest.importorskip("nanobind")
        command = [
            sys.executable,
            "-m",
            "nanobind.stubgen",
            "-q",
            "-m",
            "stele._stele",
            "-o",
            str(package / "_stele.pyi"),
        ]
        subprocess.run(command, check=True, timeout=60)
    (folder / "sample.py").write_text(SAMPLE)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-version",
        "3.10",
        "--no-error-summary",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(Path(tempfile.gettempdir()) / "stele-mypy"),
        "--python-executable",
        sys.executable,
        "python/stele",
        "sample.py",
    ]
    environment = {**os.environ, "MYPYPATH": "python"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    ).stdout


@pytest.mark.slow
def test_mypy_strict_finds_nothing_in_the_package(output: str) -> None:
    errors = [line for line in output.splitlines() if ": error:" in line and not line.startswith("sample.py")]
    # nanobind's stub has dict, list and tuple without the types of their items.
    assert [line for line in errors if not re.match(r"python/stele/_stele\.pyi:.*\[type-arg\]", line)] == []


@pytest.mark.slow
def test_a_type_checker_infers_the_types_of_the_documentation(output: str) -> None:
    found = re.findall(r'sample\.py:\d+: note: Revealed type is "(.*)"', output.replace("builtins.", ""))
    assert found == REVEALED
    errors = re.findall(r"sample\.py:(\d+): error: (.*)", output)
    lines = SAMPLE.splitlines()
    assert [lines[int(number) - 1] for number, _ in errors] == lines[-2:], errors


def test_every_public_name_has_a_docstring_and_annotations() -> None:
    for module in (stele, stele.transforms, stele.checkpoints, stele.devices):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert value.__doc__, name
            if inspect.isfunction(value):
                signature = inspect.signature(value)
                assert signature.return_annotation is not inspect.Signature.empty, name
                assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values()), name
    for kind in (stele.File, stele.Tensor, stele.CheckpointManager, stele.Checkpoint, stele.devices.DeviceTensor):
        for name, value in vars(kind).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                assert value.__doc__, f"{kind.__name__}.{name}"


def test_all_names_exist_and_are_sorted() -> None:
    for module in (stele, stele.transforms, stele.checkpoints, stele.devices, stele._errors):
        assert list(module.__all__) == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(stele.__file__).parent / "py.typed").exists()
