#!/usr/bin/env bash
# The tests of stele::mpi: tests/mpi/run.sh BUILD_FOLDER [PROCESSES...]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
shift
# Containers run as root; more processes than cores are wanted here.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ $# -gt 0 ] || set -- 1 2 3 4 8
for n; do
  echo "== $n processes"
  timeout 300 mpirun -n "$n" --oversubscribe "$build/tests/mpi/mpi_tests" -nc
done
echo "== the program of docs/distributed.md"
folder=$(mktemp -d)
(cd "$folder" && timeout 100 mpirun -n 4 --oversubscribe "$OLDPWD/$build/tests/mpi/mpi_page")
rm -rf "$folder"
python3 tests/mpi/kill_test.py "$build/tests/mpi/mpi_run" "$build/tests/mpi/mpi_store"
