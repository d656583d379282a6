#!/bin/sh
# Exchanges files with Burn, version by version: its programs write, ours reads and writes them again,
# and Burn checks what ours wrote.
#
# usage: burn.sh [CRATE...]        crates of tests/formats/burn/interop, all of them if none is named
#
# BURN_PROGRAM is our program; it is called `all THEIRS OURS VERSION`. Without it Burn checks its own files.
set -eu

cd "$(dirname "$0")/../../../.."
out=build/interop-burn
export CARGO_TARGET_DIR="$PWD/$out/target" CARGO_INCREMENTAL=0
[ $# -gt 0 ] || set -- v22 v21 v20 v19 v18 v17 v16 v15 v14 v13

failed=
for crate; do
    manifest=tests/formats/burn/interop/$crate/Cargo.toml
    version=$(sed -n 's/^burn = { version = "=\([^"]*\)".*/\1/p' "$manifest")
    folder=$out/$version
    echo "== Burn $version"
    cargo build --locked --quiet --manifest-path "$manifest" --bin "burn-files-$crate"
    program=$CARGO_TARGET_DIR/debug/burn-files-$crate
    rm -rf "$folder"
    mkdir -p "$folder/ours"
    "$program" write "$folder/theirs"
    if [ -n "${BURN_PROGRAM:-}" ]; then
        "$BURN_PROGRAM" all "$folder/theirs" "$folder/ours" "$version" || failed="$failed $version"
        # Records of 0.13 are read only.
        [ "$crate" = v13 ] || "$program" check "$folder/ours" || failed="$failed $version"
    else
        "$program" check "$folder/theirs" || failed="$failed $version"
    fi
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
