#!/usr/bin/env bash
# Run every fuzz target for SECONDS, JOBS at a time: tools/fuzz.sh SECONDS [JOBS]
# Seeds stand in tests/fuzz/corpus/<target>/, words in tests/fuzz/<target>.dict, what is found new goes to
# build/fuzz/corpus/<target>/, an input that fails to build/fuzz/failures/.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=$1

run() {
  name=${1##*/fuzz_}
  found=build/fuzz/corpus/$name seeds=tests/fuzz/corpus/$name log=build/fuzz/$name.log
  mkdir -p "$found" build/fuzz/failures
  [ -d "$seeds" ] || seeds=
  dictionary=
  [ ! -f "tests/fuzz/$name.dict" ] || dictionary=-dict=tests/fuzz/$name.dict
  if "$1" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/failures/$name-" $dictionary "$found" $seeds >"$log" 2>&1 </dev/null; then
    echo "fuzz $name: ok, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs in $FUZZ_SECONDS s"
  else
    tail -n 60 "$log"
    echo "fuzz $name: FAILED, log in $log, input in build/fuzz/failures/"
    return 1
  fi
}
export -f run

find build/fuzz/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable -print0 | sort -z |
  xargs -0 -r -n 1 -P "${2:-2}" bash -c 'run "$1"' run
