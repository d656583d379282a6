#!/usr/bin/env bash
# Compiles the core for WebAssembly with WASI, without linking, by zig's clang: tests/wasm/smoke.sh [JOBS]. The other parts of
# the library call no system. It needs zig, and headers of this machine. CI runs it instead of `make wasm`, which builds
# everything, and the libraries. Works in build/wasm-smoke.
set -euo pipefail
cd "$(dirname "$0")/../.."
jobs=${1:-2}
work=$PWD/build/wasm-smoke
export LC_ALL=C
rm -rf "$work"
mkdir -p "$work/include"
for header in boost xxhash.h xxh3.h; do
  for folder in build/deps/boost/usr/include /usr/include; do
    if [ -e "$folder/$header" ]; then ln -s "$(realpath "$folder/$header")" "$work/include/$header"; break; fi
  done
done

mapfile -t core < <(find src -name '*.cpp' -not -path '*/os/*' | sort)
core+=(src/io/os/*.cpp src/io/os/posix/*.cpp src/io/os/portable/*.cpp checkpoints/steps_format.cpp)
for ((i = 0; i < ${#core[@]}; i += 12)); do printf '#include "%s"\n' "${core[@]:i:12}" >"$work/core_$((i / 12)).cpp"; done
printf '%s\0' "$work"/core_*.cpp | xargs -0 -n 1 -P "$jobs" sh -c 'exec build/zig/bin/c++ -target wasm32-wasi -std=c++20 -O0 -c "$0" -o "$0.o" \
  -fno-exceptions -fno-rtti -DSTELE_THREADS=0 -DSTELE_MMAP=0 -fno-sanitize=undefined \
  -Wall -Wextra -Wpedantic -Wconversion -Werror -Iinclude -I. -Isrc -isystem "${0%/*}/include"'
echo "wasm: ${#core[@]} sources compile"
