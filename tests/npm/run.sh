#!/usr/bin/env bash
# Installs the packed npm package in an empty folder and tests it there: STELE=<command> STELE_TEST_DATA=<its data> tests/npm/run.sh FOLDER_WITH_TGZ
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
package=$(echo "$(cd "$1" && pwd)"/stele-*.tgz)
STELE=$(realpath "$STELE")
export STELE STELE_ROOT=$root
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/program"
cp "$root/tests/npm/npm_test.mjs" "$work/program/"
cd "$work/program"
echo '{"name": "program", "private": true, "type": "module"}' >package.json
npm install --silent --no-audit --no-fund --offline "$package"
node --test npm_test.mjs
