"""The stub of the C++ module and the annotations of the package agree with what is there at run time."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ASAN

import stele

# What mypy.stubtest reports and is right, with the reason.
ALLOWED = {
    r"stele\._stele\.\w+ is not a function": "functions of C++ are objects of the class nanobind.nb_func",
    r"stele\._stele\.\w+ is inconsistent, metaclass differs": "classes of C++ have the metaclass nanobind.nb_type",
    r'stele\._stele\.Model\.__init__ is inconsistent, stub does not have \*args parameter "args"': "has no constructor",
    r"stele\._dtypes\.ml_dtype is inconsistent, .*": "functools.cache hides the parameters from mypy",
}


@pytest.mark.slow
@pytest.mark.skipif(ASAN, reason="mypy is slow with the sanitizer")
def test_stubtest_finds_only_what_is_allowed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    package = Path(stele._stele.__file__).parent
    if not (package / "_stele.pyi").exists():
        pytest.skip("_stele.pyi is missing: the target _stele_types builds it")
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    command = [
        sys.executable,
        "-m",
        "mypy.stubtest",
        "--concise",
        "--ignore-disjoint-bases",  # nanobind does not mark classes in the stub
        "--mypy-config-file",
        str(tmp_path / "mypy.ini"),
        "stele",
    ]
    environment = {**os.environ, "MYPYPATH": str(package.parent)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    found = [line for line in result.stdout.splitlines() if line.startswith("stele.")]
    unexpected = []
    for line in found:
        missing = re.fullmatch(r"stele\.safetensors\.\w+ failed to import.*No module named '(\w+)'", line)
        if missing and importlib.util.find_spec(missing[1]) is None:
            continue
        if not any(re.fullmatch(pattern, line) for pattern in ALLOWED):
            unexpected.append(line)
    assert unexpected == [], result.stdout + result.stderr
    assert any("is not a function" in line for line in found), result.stdout + result.stderr  # it ran
