#!/usr/bin/env bash
# Runs the tests and the command that `make windows` has built, under Wine: tests/windows/run.sh BUILD_FOLDER.
# skipped.txt and command_skipped.txt beside it list the cases that are skipped, with reasons.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")"
exec </dev/null  # Wine would wait for a terminal
export WINEDEBUG=-all
WINEPREFIX=$(dirname "$build")/wine
export WINEPREFIX
find_wine() { command -v "$1" || echo "/usr/lib/wine/$1"; }
wine=$(find_wine wine64)
# The server and Windows's services start here: otherwise they would inherit the output of a test, whose reader then
# waits for them, and start and end with each program. They end a minute after the last program.
mkdir -p "$WINEPREFIX"  # the server makes none
"$(find_wine wineserver64)" -p60 >/dev/null 2>&1 || [ $? -eq 2 ]  # 2: it runs already
"$wine" wineboot >/dev/null 2>&1
status=0

skipped=$(sed -n 's/^"\([^"]*\)".*/\1/p' skipped.txt | sed 's/,/\\,/g' | paste -sd,)
(cd .. && "$wine" "$build/tests/stele_tests.exe" -tce="$skipped") || status=1

STELE=$build/tools/stele/wine-stele
export STELE
printf '#!/bin/sh\nexec %q %q "$@"\n' "$wine" "$build/tools/stele/stele.exe" >"$STELE"
chmod +x "$STELE"
python3 -B command_test.py || status=1
exit $status
