#!/usr/bin/env bash
# clang-tidy over the compiled sources of every component: tools/tidy.sh BUILD_FOLDER [JOBS]
# Those of checkpoints/mpi, which need MPI, are left out. Headers are checked through the sources that include them (.clang-tidy: HeaderFilterRegex).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
folders=()
for folder in src precision transforms encodings dl4j recorders checkpoints ir tools/stele; do [ ! -d "$folder" ] || folders+=("$folder"); done
find "${folders[@]}" -name '*.cpp' -not -path '*/mpi/*' -print0 | sort -z |
  xargs -0 -r -n 1 -P "${2:-2}" clang-tidy-14 --quiet -p "$build" 2> >(grep -v 'warnings\? generated\.$' >&2)
