#!/usr/bin/env bash
# Builds the Python package as a wheel and as sources, and checks them: tools/wheel.sh [JOBS]. The results are in build/wheel.
# The wheel's tag names the oldest glibc whose symbols it uses.
#
# GLIBC=2.28 tools/wheel.sh builds with zig for that version of glibc and later, in build/wheel-2.28. This wheel contains
# libc++, which nanobind's split mode refuses: it also contains nanobind, and is for CPython 3.12 and later.
set -euo pipefail
cd "$(dirname "$0")/.."
export CMAKE_BUILD_PARALLEL_LEVEL=${1:-2}

# Gives the functions of a wheel's shared libraries names of their own: TensorFlow exports its protobuf, re2 and zstd to
# all modules that are loaded after it.
own_names() {
  rm -rf tree
  "$python" -m wheel unpack -d tree "$1"
  for library in tree/*/stele.libs/*; do nm -D --defined-only --format=posix "$library"; done |
    awk '$2 ~ /[TBDRVWiu]/ {sub("@.*", "", $1); print $1}' | sort -u |
    grep -vE '^(_ZSt|_ZNSt|_ZNKSt|_ZTISt|_ZTSSt|_ZTVSt|_ZN9__gnu|_ZNK9__gnu|_init|_fini|_edata|_end|__bss)' |
    awk '{print $1, "stele_" $1}' >names
  for library in tree/*/stele/_stele.abi3.so tree/*/stele.libs/*; do patchelf --rename-dynamic-symbols names "$library"; done
  rm "$1"
  "$python" -m wheel pack -d . tree/*
  rm -r tree names
}

folder=$PWD/build/wheel${GLIBC:+-$GLIBC}
python=$folder/venv/bin/python
export PATH=$folder/venv/bin:$PATH
rm -rf "$folder"/raw "$folder"/*.whl "$folder"/*.tar.gz
"$python" -m build --no-isolation --outdir "$folder/raw" --sdist .
sources=.
# Without URLs: a wheel would contain its own libcurl and OpenSSL, which the system could not update.
options=(-C cmake.define.CMAKE_DISABLE_FIND_PACKAGE_CURL=ON)
if [ -n "${GLIBC-}" ]; then
  target=x86_64-linux-gnu.$GLIBC
  JOBS=$CMAKE_BUILD_PARALLEL_LEVEL tools/zig.sh "$target" libraries
  sources=$folder/sources
  rm -rf "$sources"
  mkdir "$sources"
  tar -xzf "$folder"/raw/*.tar.gz -C "$sources" --strip-components=1
  sed -i 's/, "nanobind-backend>=1.0"]/]/' "$sources/pyproject.toml"
  options+=(-C wheel.py-api=cp312 -C build-dir="$folder/build" -C cmake.define.STELE_ZIG_TARGET="$target"
           -C cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/zig.cmake")
fi
"$python" -m build --no-isolation --outdir "$folder/raw" --wheel "${options[@]}" "$sources"
cd "$folder"
"$python" -m auditwheel show raw/*.whl
"$python" -m auditwheel repair --wheel-dir . raw/*.whl
if [ -z "${GLIBC-}" ]; then own_names ./*.whl; fi
"$python" -m abi3audit --strict ./*.whl
mv raw/*.tar.gz .

# As a user: the wheel in an environment of its own.
rm -rf user
"$python" -m venv user
user/bin/pip install -q --disable-pip-version-check ./*.whl
user/bin/python -c 'import numpy, stele
stele.save({"a": numpy.arange(6.0).reshape(2, 3).T}, "check.safetensors")
assert (stele.open("check.safetensors")["a"].numpy() == numpy.arange(6.0).reshape(2, 3).T).all()
assert stele.verify("check.safetensors") and stele.convert("check.safetensors", "check.gguf", precision="f32") is not None
print("stele", stele.__version__, "works as installed")'
ls -l ./*.whl ./*.tar.gz
