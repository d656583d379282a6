#!/usr/bin/env bash
# Runs clang-format over all sources of this project: tools/format.sh -i | tools/format.sh --check
set -euo pipefail
cd "$(dirname "$0")/.."
folders=()
for folder in benchmarks bindings checkpoints deltas device dl4j encodings examples graph include ir packaging precision python recorders remote src tests tools torch training transforms; do [ ! -d "$folder" ] || folders+=("$folder"); done
sources() { find "${folders[@]}" \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cppm' -o -name '*.h' \) -print0 | sort -z; }
if [ "${1:-}" = --check ]; then
  # Compares files, because --dry-run of clang-format 14 objects to each end of a namespace with `inline` in its name.
  # shellcheck disable=SC2016
  sources | xargs -0 -r -n 32 -P 2 bash -c \
    'failed=0; for f; do clang-format-14 "$f" | diff -u --label "$f" --label "$f, formatted" "$f" - || failed=1; done; exit $failed' format
else
  sources | xargs -0 -r clang-format-14 "$@"
fi
