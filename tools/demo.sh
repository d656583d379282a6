#!/usr/bin/env bash
# The story of `make demo`, after its build: tools/demo.sh BUILD [--all]. Files stay in BUILD/files.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/$1/examples
files=$1/files
PATH=$PWD/$1/tools/stele:$PATH

printf '\nstele loads model files of other programs into your own C++ structs, and saves them again.\n\n'
rm -rf "$files"
mkdir "$files"
"$programs/digits" examples/data "$files"
"$programs/resume" examples/data

printf '4  The command, without code\n\n'
run() {
  echo "   \$ $*"
  (cd "$files" && "$@") 2>&1 | sed 's/^/   /'
}
cp examples/data/digits.pth "$files"
run stele inspect digits.pth --largest 2
run stele convert digits.pth half.safetensors --precision f16
run stele diff digits.pth half.safetensors --ignore-dtype --rtol 1e-3

if [ "${2:-}" = --all ]; then
  echo
  "$programs/every_format" examples/data "$files/formats"
  printf '6  Graphs: from ONNX and TensorFlow to DL4J and back\n\n'
  for format in onnx tensorflow; do
    mkdir "$files/$format-files"
    cmake -E chdir "$files/$format-files" cmake -E tar x "$PWD/tests/formats/$format/data.zip"
  done
  "$programs/import_model" "$files/onnx-files/mlp.onnx" "$files/onnx" --details
  "$programs/import_model" "$files/tensorflow-files/run_mlp_saved_open" "$files/tensorflow" --details
  "$stele" convert examples/data/llama "$files/llama.gguf" --precision Q8_0
fi
cat <<END

Next: examples/save_and_load.cpp            the first of $(ls examples/*.cpp | wc -l) small examples
      docs/guide/python-to-cpp.md           your own PyTorch model, in five minutes
      docs/index.md                         all pages by task; docs/guide/command.md: the command
      make demo ALL=1                       every format at every precision, graphs; the files are in $files
END
