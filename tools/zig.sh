#!/usr/bin/env bash
# Builds stele with zig's clang and libc++ for a system that this machine is not: tools/zig.sh TARGET [CMAKE TARGET...].
# Without CMAKE TARGETs, builds all and runs the tests; `libraries` builds only the libraries that stele needs, `toolchain`
# nothing.
#
#   tools/zig.sh aarch64-macos            library, command, examples and tests for macOS on Arm: compiled and linked only
#   tools/zig.sh x86_64-macos             the same for Intel
#   tools/zig.sh x86_64-linux-musl        for musl; runs the tests of tests/foreign.txt
#   tools/zig.sh x86_64-linux-gnu.2.28    for glibc 2.28; runs the tests
#   tools/zig.sh riscv64-linux-musl       for RISC-V; runs the tests of tests/foreign.txt under QEMU
#   tools/zig.sh wasm32-wasi libraries    for the preset wasm; installs wasmtime, which runs its programs
#
# zig comes from the Python package ziglang, below build/zig. JOBS compilers run at a time, by default 2.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?usage: tools/zig.sh TARGET [CMAKE TARGET...]}
jobs=${JOBS:-2}
bin=build/zig/bin
version=ziglang==0.17.1

if [ ! -x build/zig/venv/bin/python ]; then
  python3 -m venv build/zig/venv
  build/zig/venv/bin/pip install -q --disable-pip-version-check "$version"
fi
if [[ $target == wasm* ]]; then build/zig/venv/bin/pip install -q --disable-pip-version-check wasmtime==50.0.1; fi
zig=$(build/zig/venv/bin/python -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
mkdir -p "$bin"
ln -sfn "$zig" build/zig/zig
for tool in zig cc c++ ar ranlib; do  # CMake and compiler caches want programs of one word, equal in every checkout
  # shellcheck disable=SC2016
  printf '#!/bin/sh\n# %s\nexec "${0%%/*}/../zig" %s "$@"\n' "$version" "${tool/zig/}" >"$bin/$tool"
  chmod +x "$bin/$tool"
done

[ "${2-}" != toolchain ] || exit 0
tools/deps.sh cross
emulator=()
options=()
if [[ $target == *-linux-* && $target != x86_64-* ]]; then
  tools/deps.sh foreign
  emulator=("qemu-${target%%-*}")
fi
if [[ $target == *-musl ]]; then
  options=(-D STELE_EXAMPLES=OFF -D STELE_TEST_FILES="$(sed '/^#/d' tests/foreign.txt | paste -sd ';')")
fi
tools/cross_deps.sh "$target"
[ "${2-}" != libraries ] || exit 0
folder=$PWD/build/$target/build
cmake -G Ninja -S . -B "$folder" -D CMAKE_TOOLCHAIN_FILE="$PWD/cmake/zig.cmake" -D STELE_ZIG_TARGET="$target" \
  -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O1 -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=12 \
  -D STELE_WERROR=ON -D STELE_SOURCE_CHECKS=OFF -D STELE_INSTALL=OFF "${options[@]}"
shift
cmake --build "$folder" -j "$jobs" ${1+--target "$@"}
if [ $# -gt 0 ] || [[ $target == *-macos ]]; then
  echo "zig: built for $target; nothing was run"
  exit
fi
cd tests
"${emulator[@]}" "$folder/tests/stele_tests"
