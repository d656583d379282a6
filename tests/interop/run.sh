#!/usr/bin/env bash
# Checks what we write against the programs of others, and the golden files against a fresh run of their makers.
# `make interop` sets PYTHON (an interpreter with tests/interop/requirements.txt) and STELE_BUILD (a build folder).
# Fails, and never skips, when something is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${PYTHON:?python with tests/interop/requirements.txt: make interop}" "${STELE_BUILD:?a build folder: make interop}"
data=$STELE_BUILD/tests/data  # golden files, unpacked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=()
step() {  # step NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

# Built here where the build folder does not have it yet.
program() {
  [ -x "$STELE_BUILD/tests/$1" ] || cmake --build "$STELE_BUILD" --target "$1"
}

safetensors_written() {
  program interop_safetensors || return
  "$STELE_BUILD/tests/interop_safetensors" "$work/ours" || return
  "$PYTHON" tests/formats/safetensors/interop/check_safetensors.py "$work"/ours/*.safetensors
}

numpy_written() {
  program interop_numpy || return
  "$STELE_BUILD/tests/interop_numpy" write "$work/numpy" || return
  "$PYTHON" tests/formats/numpy/interop/numpy_files.py check "$work/numpy"
}

numpy_read() {
  "$PYTHON" -W ignore tests/formats/numpy/interop/numpy_files.py write "$work/their-numpy" || return
  diff -r "$work/their-numpy" "$data/formats/numpy/data" || return
  "$STELE_BUILD/tests/interop_numpy" read "$work/their-numpy"
}

shards_written() {
  program interop_shards || return
  "$STELE_BUILD/tests/interop_shards" write "$work/shards" || return
  "$PYTHON" tests/formats/safetensors/interop/shards.py check "$work/shards" 9
}

shards_read() {
  "$PYTHON" tests/formats/safetensors/interop/shards.py write "$work/their-shards" || return
  "$STELE_BUILD/tests/interop_shards" read "$work/their-shards"
}

json_written() {
  program interop_json || return
  mkdir -p "$work/json" && "$STELE_BUILD/tests/interop_json" write "$work/json" || return
  "$PYTHON" tests/formats/json/interop/json_records.py check "$work/json"
}

json_read() {
  "$PYTHON" tests/formats/json/interop/json_records.py write "$work/their-json" || return
  "$STELE_BUILD/tests/interop_json" read "$work/their-json"
}

nnef_written() {
  program interop_nnef || return
  "$STELE_BUILD/tests/interop_nnef" write "$work/nnef" || return
  "$PYTHON" tests/formats/nnef/interop/nnef_models.py own "$work/nnef"
}

nnef_read() {
  program interop_nnef || return
  "$PYTHON" tests/formats/nnef/interop/make_golden_nnef.py "$work/their-nnef" || return
  "$STELE_BUILD/tests/interop_nnef" read "$work/their-nnef"
}

nnef_copied() {
  "$STELE_BUILD/tests/interop_nnef" copy "$work/their-nnef" "$work/nnef-copies" || return
  "$PYTHON" tests/formats/nnef/interop/nnef_models.py copies "$work/nnef-copies" "$work/their-nnef"
}

nnef_golden() {
  "$PYTHON" tests/formats/nnef/interop/make_golden_nnef.py --check "$data/formats/nnef/data"
}

safetensors_golden() {
  "$PYTHON" tests/formats/safetensors/interop/make_golden_safetensors.py "$work/golden" || return
  # dcp_* and ties are made by PyTorch: make interop-dcp, make_ties.py.
  diff -r --exclude 'dcp_*' --exclude ties "$work/golden" "$data/formats/safetensors/data"
}

onnx_written() {
  program interop_onnx || return
  mkdir -p "$work/onnx" || return
  "$PYTHON" tests/formats/onnx/interop/check_onnx.py "$STELE_BUILD/tests/interop_onnx" "$data/formats/onnx/data" "$work/onnx"
}

onnx_kernels() {
  "$PYTHON" tests/interop/onnxruntime_kernels.py compare ir/data/onnxruntime.txt
}

onnx_dtypes() {
  cmake --build "$STELE_BUILD" --target stele_command || return
  "$PYTHON" tests/interop/export_dtypes.py "$STELE_BUILD/tools/stele/stele"
}

onnx_golden() {
  "$PYTHON" tests/formats/onnx/interop/make_golden_onnx.py --check "$data/formats/onnx/data"
}

archive_golden() {
  "$PYTHON" tests/formats/archive/interop/make_golden_archive.py --check "$data/formats/archive/data"
}

# The golden files, and `.stele` files that the library writes from the records of other formats.
stele_read() {
  program interop_json || return
  local files=("$work/every.json" "$data"/evolution/data/*.{bpk,safetensors,zip} "$data"/formats/burn/data/*/*.{bpk,mpk})
  mapfile -t -O ${#files[@]} files < <(find "$data"/*/data "$data"/formats/*/data -name '*.stele' | sort)
  mkdir -p "$work/stele" && "$PYTHON" tests/formats/stele/interop/check_stele.py write "$work/every.json" || return
  "$STELE_BUILD/tests/interop_json" stele "$work/stele" "${files[@]}" || return
  "$PYTHON" tests/formats/stele/interop/check_stele.py check "$work/stele" "${files[@]}"
}

step "the versions asked for" "$PYTHON" - <<'PYTHON'
import importlib.metadata, pathlib, sys
wrong = []
for line in pathlib.Path("tests/interop/requirements.txt").read_text().split():
    name, version = line.split("==")
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found = "nothing"
    if found != version:
        wrong.append(f"{name}: wants {version}, found {found}")
sys.exit("; ".join(wrong) or 0)
PYTHON
step "safetensors: files that we write" safetensors_written
step "safetensors: golden files" safetensors_golden
step "safetensors: shards that we write" shards_written
step "safetensors: shards that huggingface_hub splits" shards_read
step "NumPy: files that we write" numpy_written
step "NumPy: files that it writes, and golden files" numpy_read
step "ONNX: golden files" onnx_golden
step "ONNX: models read, written and saved into" onnx_written
step "ONNX: the table of what onnxruntime runs" onnx_kernels
step "ONNX: graphs that we export, of each operator and dtype, in onnxruntime" onnx_dtypes
step "archives: golden files" archive_golden
step "JSON: records that we write, by Python, zstd and pyzstd" json_written
step "JSON: records that these write" json_read
step ".stele: files read by Python, as docs/formats/stele.md describes them" stele_read
step "NNEF: what we write, read by the package and its C++ library" nnef_written
step "NNEF: what the package writes, and files by hand" nnef_read
step "NNEF: models of the package, written again" nnef_copied
step "NNEF: golden files" nnef_golden

if [ ${#failed[@]} -ne 0 ]; then
  printf 'interop: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "interop: ok"
