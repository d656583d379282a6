#!/usr/bin/env bash
# Imported ONNX models: DL4J 1.0.0-M2.1 runs our .fb, onnxruntime the original; a table of the largest errors.
#
#   import.sh BUILD [MODELS]    BUILD: a build folder with tests/interop_import; MODELS: a folder with onnx's test data
#                               (node/ and light/), too
set -euo pipefail
build=$(cd "$1" && pwd)
models=${2:-}
[ -z "$models" ] || models=$(cd "$models" && pwd)
cd "$(dirname "$0")/../.."
work=$PWD/build/interop/import
mkdir -p "$work"
mvn -q -B -f tests/interop/dl4j/pom.xml package -DbuildDirectory="$PWD/build/interop/dl4j"
[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0
"$work/venv/bin/python" tests/interop/import.py prepare "$work" $models
"$build/tests/interop_import" "$work/list.txt" > "$work/imported.txt"
java -cp "build/interop/dl4j/classes:build/interop/dl4j/lib/*" stele.RunGraphs "$work"/cases/*/ > "$work/results.txt" 2> "$work/java.log"
"$work/venv/bin/python" tests/interop/import.py table "$work"
