#!/usr/bin/env bash
# Exchanges state_dicts with PyTorch, both ways. `make torch` sets PYTHON (an interpreter with torch and safetensors) and
# STELE_BUILD (a build folder configured with STELE_TORCH=ON). Fails, and never skips, when something is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${PYTHON:?python with torch and safetensors: make torch}" "${STELE_BUILD:?a build folder with STELE_TORCH=ON: make torch}"
"$PYTHON" -c 'import torch, safetensors.torch' || { echo "torch: $PYTHON lacks torch or safetensors: make torch" >&2; exit 1; }
cmake --build "$STELE_BUILD" --target interop_torch -j "${JOBS:-2}" ||
  { echo "torch: interop_torch was not built; is libtorch installed, and STELE_TORCH=ON in $STELE_BUILD?" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PYTHON" tests/interop/check_torch.py make "$work"
STELE_TORCH_FILES=$work "$STELE_BUILD/tests/interop_torch"
"$PYTHON" tests/interop/check_torch.py check "$work"
echo "torch: ok"
