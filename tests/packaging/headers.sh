#!/usr/bin/env bash
# Every public header is used by a program of consumer/, or by a row of its CMakeLists.txt, but for those that need other libraries' types.
set -euo pipefail
cd "$(dirname "$0")/../../include"
status=0
while read -r header; do
  if ! grep -qE "(#include <|set\(program_[a-z]+ )$header[> ]" ../tests/packaging/consumer/*.[ch]pp ../tests/packaging/consumer/CMakeLists.txt; then
    printf 'packaging: no program of tests/packaging/consumer uses %s\n' "$header" >&2
    status=1
  fi
done < <(find stele -name '*.hpp' -not -path 'stele/detail/*' | sort | grep -vE '^stele/(cereal|eigen|mdspan|mpi|torch|xtensor)[.]hpp$')
exit $status
