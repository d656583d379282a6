#!/usr/bin/env bash
# Imported ONNX and TensorFlow models: DL4J 1.0.0-M2.1 runs our .fb, onnxruntime our export to ONNX, and onnxruntime or
# TensorFlow the original; tables of the largest errors.
#
#   import.sh BUILD [PAGE [TENSORFLOW_PAGE]]    BUILD: a build folder with tests/interop_import; PAGE, TENSORFLOW_PAGE:
#                                               Markdown files for the tables of ONNX and of TensorFlow
#
# In the environment: MODELS=FOLDER: only the models of this folder, MODEL.onnx with their inputs as MODEL.npz, and no pages.
# TORCH=1: with models that PyTorch exports, the newest (a gigabyte) and, if it is installed,
# Debian's. TENSORFLOW=1: with models and operators of TensorFlow (two gigabytes).
set -euo pipefail
build=$(cd "$1" && pwd)
pages=("${@:2}")
own=()
[ -z "${MODELS:-}" ] || own=("$(cd "$MODELS" && pwd)") pages=()
cd "$(dirname "$0")/../.."
work=$PWD/build/interop/import
mkdir -p "$work/torch"
mvn -q -B -f tests/formats/samediff/interop/dl4j/pom.xml package -DbuildDirectory="$PWD/build/interop/dl4j"
[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0 safetensors==0.8.0 Pillow ml_dtypes
if [ -n "${TORCH:-}" ]; then
  rm -f "$work"/torch/*
  "$work/venv/bin/pip" install -q torch==2.15.0 onnxscript transformers==5.24.0
  "$work/venv/bin/python" -W ignore tests/interop/torch_models.py "$work/torch" torch2.15
  "$work/venv/bin/python" -W ignore tests/interop/torch_models.py "$work/torch" torch2.15-dynamo --dynamo
  if /usr/bin/python3 -I -c "import torch" 2>/dev/null; then  # -I: torch/ of this folder is not it
    [ -x "$work/oldvenv/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$work/oldvenv"
    "$work/oldvenv/bin/pip" install -q transformers==4.30.2
    "$work/oldvenv/bin/python" -W ignore tests/interop/torch_models.py "$work/torch" torch1.13
  fi
fi
if [ -n "${TENSORFLOW:-}" ]; then  # its NumPy and protobuf are not onnx's
  rm -rf "$work/tensorflow"
  [ -x "$work/tfvenv/bin/python" ] || python3 -m venv "$work/tfvenv"
  "$work/tfvenv/bin/pip" install -q tensorflow==2.21.0 keras==3.15.1 safetensors==0.8.0
  "$work/tfvenv/bin/python" -W ignore tests/interop/tensorflow_models.py "$work/tensorflow" 2> "$work/tensorflow.log" ||
    { tail -n 30 "$work/tensorflow.log" >&2; exit 1; }
fi
export STELE_TEST_DATA=$build/tests/data
python=("$work/venv/bin/python" -W ignore tests/interop/import.py)
"${python[@]}" prepare "$work" "${own[@]}"
"$build/tests/interop_import" "$work/list.txt" > "$work/imported.txt"
"${python[@]}" run "$work" java -cp "build/interop/dl4j/classes:build/interop/dl4j/lib/*" stele.RunGraphs
"${python[@]}" table "$work" "${pages[@]}"
