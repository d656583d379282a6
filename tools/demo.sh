#!/usr/bin/env bash
# The story of `make demo`: tools/demo.sh [--all], after the release build. Files stay in build/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/build/release/examples
PATH=$PWD/build/release/tools/stele:$PATH
details=()
[ "${1:-}" != --all ] || details=(--details)

printf '\nstele loads model files of other programs into your own C++ structs, and saves them in any of these formats.\n\n'
rm -rf build/demo
"$programs/digits" examples/data --files build/demo "$@"
echo
"$programs/resume" examples/data

printf '5  Graphs: from ONNX and TensorFlow to DL4J and back\n\n'
for format in onnx tensorflow; do
  mkdir build/demo/$format-files
  cmake -E chdir build/demo/$format-files cmake -E tar x "$PWD/tests/formats/$format/data.zip"
done
"$programs/import_model" build/demo/onnx-files/mlp.onnx build/demo/onnx "${details[@]}"
"$programs/import_model" build/demo/tensorflow-files/run_mlp_saved_open build/demo/tensorflow "${details[@]}"
[ ${#details[@]} -eq 0 ] || "$programs/llama_to_gguf" examples/data/llama build/demo/llama.gguf Q8_0

printf '\n6  The command, without code\n\n'
cp examples/data/digits.pth build/demo
cd build/demo
run() {
  echo "   \$ $*"
  "$@" 2>&1 | sed 's/^/   /'
}
run stele inspect digits.pth --largest 2
run stele convert digits.pth half.safetensors --precision f16
run stele diff digits.pth half.safetensors --ignore-dtype --rtol 1e-3
cat <<'END'

Next: examples/save_and_load.cpp            the first of nine small examples
      docs/guide/python-to-cpp.md           your own PyTorch model, in five minutes
      docs/index.md                         all pages by task; docs/guide/command.md: the command
      make demo ALL=1                       every format at every precision; the files are in build/demo
END
