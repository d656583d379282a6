#!/usr/bin/env bash
# Runs clang-tidy over the compiled sources of every component: tools/tidy.sh BUILD_FOLDER [JOBS]
# Checks unity builds as compiled, so that a dozen sources read their headers once. A source of checkpoints/mpi is
# checked if the build has MPI. Headers are checked through the sources that include them (.clang-tidy: HeaderFilterRegex).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
python3 - "$build" <<'END' |
import json, os, sys
build = os.path.relpath(sys.argv[1])
folders = ("src", "precision", "transforms", "encodings", "training", "graph", "dl4j", "recorders", "remote", "deltas", "device", "checkpoints", "ir", "tools/stele")
for entry in json.load(open(build + "/compile_commands.json", encoding="utf-8")):
    file = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
    unity = file.endswith("_cxx.cxx") and file.startswith(tuple(f"{build}/{folder}/" for folder in folders))
    if unity or file.startswith(tuple(f"{folder}/" for folder in folders)):
        print(file, end="\0")
END
  xargs -0 -r -n 1 -P "${2:-2}" clang-tidy-14 --quiet --checks=-bugprone-suspicious-include -p "$build" \
    2> >(grep -v 'warnings\? generated\.$' >&2)
