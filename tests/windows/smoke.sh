#!/usr/bin/env bash
# Compiles for Windows, without linking, what depends on the system: tests/windows/smoke.sh [JOBS]. These are the calls of
# Windows, other sources with code for Windows, the tests here, and the core in the batches of a unity build, which are the
# same on every system (cmake/SteleComponent.cmake). It needs MinGW's compiler, and headers of this machine. CI runs it
# instead of `make windows`, which builds everything, and the libraries. Works in build/windows-smoke.
set -euo pipefail
cd "$(dirname "$0")/../.."
jobs=${1:-2}
work=$PWD/build/windows-smoke
export LC_ALL=C
rm -rf "$work"
mkdir -p "$work/include"
for header in boost doctest xxhash.h xxh3.h xxh_x86dispatch.h; do
  for folder in build/deps/boost/usr/include /usr/include; do
    if [ -e "$folder/$header" ]; then ln -s "$(realpath "$folder/$header")" "$work/include/$header"; break; fi
  done
done

# Only sources of their own include the headers of Windows, whose macros (far, small, ERROR) would change what follows them.
others=$(git grep -lE '^#include <(windows|winsock2?|winternl)[.]h>' -- '*.cpp' '*.hpp' ':!src/io/os/windows' ':!tests/windows' || true)
if [ "$others" != tools/stele/console_windows.cpp ]; then
  printf 'windows: unexpected sources with headers of Windows: %s\n' "$others" >&2
  exit 1
fi

mapfile -t core < <(find src -name '*.cpp' -not -path '*/os/*' | sort)
core+=(src/io/os/*.cpp)
for ((i = 0; i < ${#core[@]}; i += 12)); do printf '#include "%s"\n' "${core[@]:i:12}" >"$work/core_$((i / 12)).cpp"; done
mapfile -t alone < <(ls src/io/os/windows/*.cpp tests/windows/*.cpp tools/stele/console_windows.cpp && git grep -l _WIN32 -- 'device/*.cpp')
printf '%s\0' "$work"/core_*.cpp "${alone[@]}" | xargs -0 -n 1 -P "$jobs" x86_64-w64-mingw32-g++-posix -std=c++20 -O1 -fsyntax-only \
  -Wall -Wextra -Wpedantic -Wconversion -Wno-subobject-linkage -Werror -Iinclude -I. -Isrc -Itests -isystem "$work/include"
echo "windows: $((${#core[@]} + ${#alone[@]})) sources compile"
