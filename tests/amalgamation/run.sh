#!/usr/bin/env bash
# Compiles stele.hpp and stele.cpp of tools/amalgamate.py by themselves, runs programs that use them, and compares the files
# that they write and read with those of the library.
#
#   run.sh FILES DATA FOLDER [--all]
#
# FILES: files.cpp, linked with the library. DATA: the unpacked golden files of the tests. FOLDER: for what is built. --all:
# also with exceptions, RTTI and the optional libraries, other compilers, optimised, with FMA, and for Windows. CXX: the
# compiler, by default g++-12.
set -euo pipefail
files=$(realpath "$1") data=$(realpath "$2") work=$3 all=${4:-}
cd "$(dirname "$0")/../.."
rm -rf "$work"
mkdir -p "$work"
work=$(realpath "$work")
here=$PWD/tests/amalgamation
cxx=${CXX:-g++-12}
fail() { printf 'amalgamation: %s\n' "$*" >&2; exit 1; }

tools/amalgamate.py --out "$work"
strict=(-std=c++20 -Wall -Wextra -Werror "-I$work")
# That warning is false at -O2 and above: gcc.gnu.org/PR105651. A larger heap: less collecting of garbage.
case $cxx in *g++-12) strict+=(-Wno-restrict --param=ggc-min-heapsize=1500000) ;; esac
bare=(-fno-exceptions -fno-rtti)
libraries=(-D STELE_ZSTD=1 -D STELE_ZLIB=1)
links=(-lzstd -lz -ldeflate)
boost=()
[ ! -d build/deps/boost ] || boost=(-isystem build/deps/boost/usr/include)

# The program of the guide to installation.
sed -n '/^\/\/ main.cpp$/,/^```/p' docs/guide/install.md | grep -v '^```' >"$work/guide.cpp"

started=()
start() { "$cxx" "${strict[@]}" -O0 -c "${@:2}" -o "$work/$1.o" & started+=($!); }
finish() { for job in "${started[@]}"; do wait "$job" || fail "a source does not compile"; done; started=(); }
start bare "${bare[@]}" "$work/stele.cpp"
for source in "$here/main.cpp" "$here/other.cpp" "$work/guide.cpp"; do
  start "$(basename "$source" .cpp)" -Wpedantic -Wconversion -Wshadow "${bare[@]}" "$source"
done
start boost "${boost[@]}" "$here/boost.cpp"
start files_bare "${bare[@]}" -D TWO_FILES "$here/files.cpp"
finish
link() { "$cxx" "${@:2}" -o "$work/$1"; }  # link PROGRAM OBJECT...
run() { mkdir -p "$work/in/$1"; (cd "$work/in/$1" && "${@:2}") || fail "$1: exit status $?"; }

echo "== a program of two sources, and that of the guide"
link two "$work"/{main,other,bare}.o
run two "$work/two"
link guide "$work"/{guide,bare}.o
run guide "$work/guide"

echo "== a program with a Boost of its own"
link boost "$work"/{boost,bare}.o
run boost "$work/boost"

# written NAME PROGRAM: its files equal those of the library, and each reads the other's.
written() {
  mkdir -p "$work/in/$1/ours" "$work/in/$1/theirs"
  "$2" write "$work/in/$1/ours" || fail "$1 cannot write"
  "$files" write "$work/in/$1/theirs" || fail "the library cannot write"
  diff -r "$work/in/$1/ours" "$work/in/$1/theirs" || fail "$1 writes other files"
  (cd "$work/in/$1/ours" && "$files" read ./*) >"$work/in/$1/library.txt"
  (cd "$work/in/$1/theirs" && "$2" read ./*) >"$work/in/$1/two.txt"
  diff "$work/in/$1/library.txt" "$work/in/$1/two.txt" || fail "$1 reads other contents"
  if grep -q ' error ' "$work/in/$1/two.txt"; then fail "$1 has errors"; fi
}
# Golden files of other programs and older versions, by format.
mapfile -t golden < <(cd "$data" && find formats/{safetensors,gguf,numpy}/data evolution/data -type f \
  \( -name '*.safetensors' -o -name '*.gguf' -o -name '*.np[yz]' -o -name '*.stele' -o -name '*.json' -o -name '*.json.zst' \) | sort)
[ ${#golden[@]} -ge 100 ] || fail "only ${#golden[@]} golden files"
# opened NAME PROGRAM [PATTERN]: both read the golden files alike, except for files for which PROGRAM reports PATTERN.
opened() {
  (cd "$data" && "$2" read "${golden[@]}") >"$work/in/$1/golden.txt"
  (cd "$data" && "$files" read "${golden[@]}") >"$work/in/$1/golden_library.txt"
  python3 -B "$here/compare.py" "$work/in/$1/golden.txt" "$work/in/$1/golden_library.txt" "${3:-}" || fail "$1 reads golden files differently"
}

echo "== files"
link files_bare "$work"/{files_bare,bare}.o
written bare "$work/files_bare"
opened bare "$work/files_bare" "built without z"
[ "$all" = --all ] || exit 0

echo "== with exceptions, RTTI and the optional libraries: the first steps of the guide, files"
mkdir -p "$work/blocks" "$work/include/stele"
echo '#include "../../stele.hpp"' >"$work/include/stele/stele.hpp"
python3 -B tests/docs/extract.py . "$work/blocks" docs/guide/first-steps.md | grep '^run|' >"$work/blocks/list"
start whole "${libraries[@]}" "$work/stele.cpp"
# Without warnings: the blocks do not use all results.
start first -w -I "$work/include" -I tests/docs "$(head -1 "$work/blocks/list" | cut -d'|' -f3)"
start files_whole -D TWO_FILES "$here/files.cpp"
finish
link first "$work"/{first,whole}.o "${links[@]}"
while IFS='|' read -r _ name _; do
  run "steps/${name##*:}" "$work/first" "${name##*:}" >/dev/null
done <"$work/blocks/list"
echo "$(wc -l <"$work/blocks/list") blocks ran"
link files_whole "$work"/{files_whole,whole}.o "${links[@]}"
written whole "$work/files_whole"
opened whole "$work/files_whole"

echo "== optimised, with FMA"
"$cxx" "${strict[@]}" "${libraries[@]}" -O2 -march=haswell -D TWO_FILES "$here/files.cpp" "$work/stele.cpp" "${links[@]}" -o "$work/files_fma"
written fma "$work/files_fma"
for other in clang++-14 clang++-19; do
  command -v $other >/dev/null || continue
  echo "== $other"
  of_clang=(-std=c++20 -Wall -Wextra -Werror "-I$work")
  $other "${of_clang[@]}" "${bare[@]}" -O1 "$here/main.cpp" "$here/other.cpp" "$work/stele.cpp" -o "$work/two_$other"
  run "$other" "$work/two_$other"
  $other "${of_clang[@]}" "${libraries[@]}" -O2 -march=haswell -D TWO_FILES "$here/files.cpp" "$work/stele.cpp" "${links[@]}" -o "$work/files_$other"
  written "files_$other" "$work/files_$other"
done
echo "== one thread, no maps, a system with POSIX's calls alone"
"$cxx" "${strict[@]}" "${bare[@]}" -O0 -U__linux__ -D STELE_THREADS=0 -D STELE_MMAP=0 -D TWO_FILES "$here/files.cpp" "$work/stele.cpp" -o "$work/files_portable"
written portable "$work/files_portable"
echo "== Windows"
mingw=x86_64-w64-mingw32-g++-posix
command -v $mingw >/dev/null || fail "$mingw is missing: tools/deps.sh windows-smoke"
$mingw -std=c++20 -Wall -Wextra -Werror "-I$work" "${bare[@]}" -O1 -static "$here/main.cpp" "$here/other.cpp" "$work/stele.cpp" -lntdll -ladvapi32 -o "$work/two.exe"
wine=$(command -v wine64 || command -v /usr/lib/wine/wine64 || true)
if [ -n "$wine" ]; then run wine env WINEDEBUG=-all "$wine" "$work/two.exe"; else echo "linked only: Wine is missing"; fi
