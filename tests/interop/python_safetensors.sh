#!/usr/bin/env bash
# Runs the tests of safetensors' own Python package over stele.safetensors, by an alias of the module.
#
#   PYTHON=... [SAFETENSORS_TESTS=folder] tests/interop/python_safetensors.sh [work folder]
#
# PYTHON finds the module stele, and has pytest, numpy, torch and fsspec; the tests of flax, mlx, paddle and tensorflow
# run where these are installed. SAFETENSORS_TESTS is the folder bindings/python/tests of safetensors; without it, the
# repository is fetched, or else the source distribution of PyPI. Tests that are left out are in
# python_safetensors_differences.txt, with the reasons. Fails, and never skips, when something is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${PYTHON:?a Python with stele, pytest, numpy, torch and fsspec}"
version=0.8.0 commit=24b0b2857fef49be734b9ab72ce97c09bb25f5b9
files="test_simple test_pt_comparison test_pt_model test_handle test_threadable test_multithreaded test_pread_backend"
"$PYTHON" -c 'import fsspec, numpy, pytest, torch, stele.safetensors' ||
  { echo "python_safetensors: $PYTHON lacks stele, pytest, numpy, torch or fsspec" >&2; exit 1; }

work=${1:-}
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
work=$(cd "$work" && pwd)
if [ -z "${SAFETENSORS_TESTS:-}" ]; then
  if git init -q "$work/repository" &&
    git -C "$work/repository" fetch -q --depth 1 https://github.com/huggingface/safetensors "$commit" &&
    git -C "$work/repository" checkout -q FETCH_HEAD; then
    SAFETENSORS_TESTS=$work/repository/bindings/python/tests
  else  # pip runs the build of a source distribution to learn its name: that needs Rust
    "$PYTHON" -m pip download -q --no-deps --no-binary :all: -d "$work" "safetensors==$version"
    tar -xzf "$work/safetensors-$version.tar.gz" -C "$work"
    SAFETENSORS_TESTS=$(find "$work/safetensors-$version" -name test_simple.py -printf '%h\n' -quit)
  fi
fi
[ -f "$SAFETENSORS_TESTS/test_simple.py" ] ||
  { echo "python_safetensors: no tests of safetensors in ${SAFETENSORS_TESTS:-its source distribution}" >&2; exit 1; }

rm -rf "$work/run"
mkdir -p "$work/run/tests/data"
cp "$SAFETENSORS_TESTS"/test_*.py "$work/run/tests/"
cat > "$work/run/tests/conftest.py" <<'PY'
"""Makes `safetensors` a name of stele.safetensors."""

import importlib
import sys

import stele.safetensors

sys.modules["safetensors"] = stele.safetensors
for name in ("numpy", "torch", "flax", "mlx", "paddle", "tensorflow"):
    try:
        sys.modules["safetensors." + name] = importlib.import_module("stele.safetensors." + name)
    except ModuleNotFoundError as error:
        assert not (error.name or "").startswith("stele"), error


def pytest_sessionfinish() -> None:
    assert "safetensors._safetensors_rust" not in sys.modules, "the tests have used safetensors itself"
PY
"$PYTHON" -c 'import jax, flax' 2> /dev/null && files+=" test_flax_comparison"
"$PYTHON" -c 'import mlx.core' 2> /dev/null && files+=" test_mlx_comparison"
"$PYTHON" -c 'import paddle' 2> /dev/null && files+=" test_paddle_comparison"
"$PYTHON" -c 'import tensorflow' 2> /dev/null && files+=" test_tf_comparison"

arguments=()
for file in $files; do
  arguments+=("tests/$file.py")
done
while read -r test _; do
  case $test in
    '' | '#'*) ;;
    *) arguments+=("--deselect=tests/$test") ;;
  esac
done < "$here/python_safetensors_differences.txt"
cd "$work/run"
"$PYTHON" -m pytest -q -p no:cacheprovider -rs --import-mode=importlib "${arguments[@]}"
echo "python_safetensors: ok"
