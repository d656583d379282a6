#!/usr/bin/env bash
# clang-format over all our sources: tools/format.sh -i | tools/format.sh --dry-run --Werror
set -euo pipefail
cd "$(dirname "$0")/.."
rooms=()
for room in benchmarks checkpoints dl4j encodings examples include ir precision recorders src tests tools torch transforms; do [ ! -d "$room" ] || rooms+=("$room"); done
find "${rooms[@]}" \( -name '*.hpp' -o -name '*.cpp' -o -name '*.h' \) -print0 | sort -z | xargs -0 -r clang-format-14 "$@"
