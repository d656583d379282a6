#!/usr/bin/env bash
# Builds the Python package as a wheel and as sources, and checks them: tools/wheel.sh [JOBS]. The results are in build/wheel.
# The wheel's tag names the oldest glibc whose symbols it uses.
set -euo pipefail
cd "$(dirname "$0")/.."
export CMAKE_BUILD_PARALLEL_LEVEL=${1:-2}
python=$PWD/build/wheel/venv/bin/python
export PATH=$PWD/build/wheel/venv/bin:$PATH
rm -rf build/wheel/raw build/wheel/*.whl build/wheel/*.tar.gz
"$python" -m build --no-isolation --outdir build/wheel/raw --sdist --wheel .
"$python" -m auditwheel show build/wheel/raw/*.whl
"$python" -m auditwheel repair --wheel-dir build/wheel build/wheel/raw/*.whl
"$python" -m abi3audit --strict build/wheel/*.whl
mv build/wheel/raw/*.tar.gz build/wheel/

# As a user: the wheel in an environment of its own.
rm -rf build/wheel/user
python3 -m venv build/wheel/user
build/wheel/user/bin/pip install -q --disable-pip-version-check build/wheel/*.whl
cd build/wheel
user/bin/python -c 'import numpy, stele
stele.save({"a": numpy.arange(6.0).reshape(2, 3).T}, "check.safetensors")
assert (stele.open("check.safetensors")["a"].numpy() == numpy.arange(6.0).reshape(2, 3).T).all()
assert stele.verify("check.safetensors") and stele.convert("check.safetensors", "check.gguf", precision="f32") is not None
print("stele", stele.__version__, "works as installed")'
ls -l ./*.whl ./*.tar.gz
