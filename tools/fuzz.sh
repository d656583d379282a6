#!/usr/bin/env bash
# Runs every fuzz target, JOBS at a time:
#
#   tools/fuzz.sh seconds N [JOBS]  random inputs, for N seconds a target; new ones are kept in build/fuzz/corpus/<target>/
#   tools/fuzz.sh runs N [JOBS]     the seeds, then N inputs made from them with a fixed seed: one commit, one verdict
#
# Next to <target>.cpp, in tests/fuzz/ or tests/formats/<format>/fuzz/, are its words, <target>.dict, and its seeds,
# <target>/ in corpus.zip, which CMake unpacks. any_fuzz takes the seeds of all targets.
# An input that fails goes to build/fuzz/failures/. TARGETS names the targets to run, all by default.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1-} in
  seconds | runs) export FUZZ_MODE=$1 FUZZ_COUNT=$2 ;;
  *) echo "usage: tools/fuzz.sh seconds|runs N [JOBS]" >&2; exit 2 ;;
esac

run() {
  name=${1##*/fuzz_}
  found=build/fuzz/corpus/$name log=build/fuzz/$name.log
  options=(-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/fuzz/failures/$name-")
  seeds=()
  for file in tests/fuzz/"$name".dict tests/formats/*/fuzz/"$name".dict; do
    [ ! -f "$file" ] || options+=(-dict="$file")
  done
  for folder in build/fuzz/tests/data/fuzz/corpus/* build/fuzz/tests/data/formats/*/fuzz/corpus/*; do
    if [ "$name" = any_fuzz ] || [ "$name" = "${folder##*/}" ]; then seeds+=("$folder"); fi
  done
  if [ "$FUZZ_MODE" = runs ]; then
    found=$(mktemp -d)
    options+=(-seed=1 -runs="$FUZZ_COUNT")
  else
    options+=(-max_total_time="$FUZZ_COUNT")
  fi
  mkdir -p "$found" build/fuzz/failures
  verdict=0
  "$1" "${options[@]}" "$found" "${seeds[@]}" >"$log" 2>&1 </dev/null || verdict=$?
  [ "$FUZZ_MODE" != runs ] || rm -rf "$found"
  if [ $verdict = 0 ]; then
    echo "fuzz $name: ok, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs"
  else
    tail -n 60 "$log"
    echo "fuzz $name: FAILED, log in $log, input in build/fuzz/failures/"
    return 1
  fi
}
export -f run

targets=build/fuzz/tests/fuzz
{
  if [ -n "${TARGETS:-}" ]; then
    for name in $TARGETS; do printf '%s\0' "$targets/fuzz_$name"; done
  else
    find "$targets" -maxdepth 1 -name 'fuzz_*' -type f -executable -print0 | sort -z
  fi
} | xargs -0 -r -n 1 -P "${3:-2}" bash -c 'run "$1"' run
