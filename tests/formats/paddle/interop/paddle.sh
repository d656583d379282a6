#!/usr/bin/env bash
# Parameter files of PaddlePaddle, both ways: Paddle makes files (and the same bytes as the golden ones), we read them,
# compare, and write the same bytes; Paddle reads what we wrote, and its predictor computes the same with it.
# `make interop-paddle` sets PYTHON, an interpreter with tests/formats/paddle/interop/requirements.txt.
#
#   paddle.sh BUILD    BUILD: a build folder with tests/interop_paddle
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../../.."
: "${PYTHON:?python with tests/formats/paddle/interop/requirements.txt: make interop-paddle}"
[ -x "$build/tests/interop_paddle" ] || { echo "paddle: no $build/tests/interop_paddle" >&2; exit 1; }
"$PYTHON" - <<'PYTHON'
import importlib.metadata, pathlib, sys
for line in pathlib.Path("tests/formats/paddle/interop/requirements.txt").read_text().split():
    name, version = line.split("==")
    found = importlib.metadata.version(name)
    if found != version:
        sys.exit(f"{name}: wants {version}, found {found}")
PYTHON

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PYTHON" tests/formats/paddle/interop/paddle_files.py make "$work/theirs"
diff -r --exclude 'names_folder*' "$work/theirs" "$build/tests/data/formats/paddle/data"
"$build/tests/interop_paddle" "$work/theirs" "$work/ours"
"$PYTHON" tests/formats/paddle/interop/paddle_files.py check "$work/theirs" "$work/ours"
echo "paddle: ok"
