#!/usr/bin/env bash
# Runs the tests and the command that `make windows` has built, under Wine: tests/windows/run.sh BUILD_FOLDER.
# tests/windows/skipped.txt lists the cases that are skipped, with reasons.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
export WINEDEBUG=-all
WINEPREFIX=$(dirname "$build")/wine
export WINEPREFIX
wine=$(command -v wine64 || echo /usr/lib/wine/wine64)

# The file of the test's output is removed at the end, because Wine's console writes escape sequences.
skipped=$(sed -n 's/^"\([^"]*\)".*/\1/p' windows/skipped.txt | sed 's/,/\\,/g' | paste -sd,)
"$wine" "$build/tests/stele_tests.exe" -tce="$skipped"
