#!/usr/bin/env bash
# Files of PyTorch, both ways, of a new and an old version: PyTorch makes files, we read them, compare, and write them
# again and others; both versions of PyTorch load what we wrote, bit for bit, into models and optimizers, too. Makes the
# golden files anew, and compares those whose bytes do not depend on the run.
# `make interop-pytorch` sets PYTHON, an interpreter with requirements.txt. OLD_PYTHON has Debian's python3-torch:
# /usr/bin/python3, if it is not set. Fails, and never skips, when something is missing.
#
#   pytorch.sh BUILD    BUILD: a build folder with tests/interop_pytorch
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../../.."
: "${PYTHON:?python with tests/formats/pytorch/interop/requirements.txt: make interop-pytorch}"
: "${OLD_PYTHON:=/usr/bin/python3}"
program=$build/tests/interop_pytorch
[ -x "$program" ] || { echo "pytorch: no $program" >&2; exit 1; }
"$PYTHON" - <<'PYTHON'
import importlib.metadata, pathlib, sys
for line in pathlib.Path("tests/formats/pytorch/interop/requirements.txt").read_text().split():
    name, version = line.split("==")
    found = importlib.metadata.version(name)
    if found != version:
        sys.exit(f"{name}: wants {version}, found {found}")
PYTHON
"$OLD_PYTHON" -c 'import sys, torch; torch.__version__.startswith("1.13") or sys.exit(f"torch: wants 1.13, found {torch.__version__}")' ||
  { echo "pytorch: $OLD_PYTHON has no PyTorch 1.13: tools/deps.sh torch" >&2; exit 1; }
"$PYTHON" -c 'import sys, torch; print(f"pytorch: new: {torch.__version__}, Python {sys.version.split()[0]}")'
"$OLD_PYTHON" -c 'import sys, torch; print(f"pytorch: old: {torch.__version__}, Python {sys.version.split()[0]}")'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=tests/formats/pytorch/interop/pytorch_files.py
failed=()
step() {  # step NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

golden() {
  local maker=tests/formats/pytorch/interop/make_golden_pytorch.py
  "$PYTHON" $maker "$work/golden" && "$OLD_PYTHON" $maker "$work/golden" || return
  # Keys of streams and of libtorch's optimizers are addresses; folders of DCP have identifiers of the run.
  local file name
  for file in "$work"/golden/*.pt*; do
    name=$(basename "$file")
    case $name in legacy* | libtorch_adam*) continue ;; esac
    cmp "$file" "$build/tests/data/formats/pytorch/data/$name" || return
  done
}

"$PYTHON" "$files" make "$work/new"
"$OLD_PYTHON" "$files" make "$work/old"
for version in new old; do
  step "files of the $version PyTorch are read" "$program" check "$work/$version"
  step "files of the $version PyTorch are written again" "$program" write "$work/$version"
  step "the new PyTorch loads them" "$PYTHON" "$files" check-ours "$work/$version"
  step "the old PyTorch loads them" "$OLD_PYTHON" "$files" check-ours "$work/$version"
done
step "the golden files" golden
if [ ${#failed[@]} -ne 0 ]; then
  printf 'pytorch: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "pytorch: ok"
