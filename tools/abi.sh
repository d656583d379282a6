#!/usr/bin/env bash
# Compares the ABI of two revisions, for a release: tools/abi.sh OLD_REF [NEW_REF [CMAKE_OPTION...]]
# Builds both shared libraries with debug information below build/abi and runs abidiff, which ignores types that include/
# does not declare. Fails if there is any change; a removed name, or another size or layout of a class, needs a new soname.
set -euo pipefail
cd "$(dirname "$0")/.."
old=${1:?usage: tools/abi.sh OLD_REF [NEW_REF [CMAKE_OPTION...]]}
new=${2:-HEAD}
tools/deps.sh abi
command -v ccache >/dev/null && export CCACHE_NOHASHDIR=1

build() {  # build REF FOLDER CMAKE_OPTION...
  rm -rf "$2"
  mkdir -p "$2"
  git archive "$1" | tar -x -C "$2"
  (cd "$2" && cmake --preset deb -D CMAKE_CXX_FLAGS=-g -D STELE_COMMAND=OFF "${@:3}" && cmake --build --preset deb -j "${JOBS:-2}" --target stele)
}
build "$old" build/abi/old "${@:3}"
build "$new" build/abi/new "${@:3}"
abidiff --headers-dir1 build/abi/old/include --headers-dir2 build/abi/new/include \
    build/abi/old/build/deb/libstele.so build/abi/new/build/deb/libstele.so
