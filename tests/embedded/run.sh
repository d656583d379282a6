#!/usr/bin/env bash
# Builds programs for a Cortex-M4, runs them under QEMU and compares with the host. CMake sets STELE_EMBEDDED_HOST (the
# program of host.cpp) and STELE_INCLUDES (the folders that hold boost/ and xxhash.h, separated by colons).
#
#   run.sh reader FOLDER   a model read in place from flash
#   run.sh writer FOLDER   a model written in fixed memory, compared with what the host writes
#
# What is built goes to FOLDER. Exit status 77 where tools are missing; with STELE_NEVER_SKIP=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${STELE_EMBEDDED_HOST:?the host program: make embedded}" "${STELE_INCLUDES:?folders: make embedded}"
work=$2
here=tests/embedded

for tool in arm-none-eabi-g++ arm-none-eabi-nm arm-none-eabi-size qemu-system-arm; do
  command -v "$tool" >/dev/null && continue
  echo "skipped: $tool is missing: make deps-embedded"
  [ -z "${STELE_NEVER_SKIP:-}" ] || exit 1
  exit 77
done

mkdir -p "$work/include"
# Links: the folders themselves may be /usr/include, which is the host's.
IFS=: read -ra folders <<<"$STELE_INCLUDES"
for folder in "${folders[@]}"; do
  for name in boost xxhash.h; do
    [ ! -e "$folder/$name" ] || ln -sfn "$folder/$name" "$work/include/$name"
  done
done

# -Wno-psabi: its notes on calls are about GCC before 7.
compile=(arm-none-eabi-g++ -std=c++20 -Os -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16
         -fno-exceptions -fno-rtti -ffunction-sections -fdata-sections -DSTELE_HEAP=0
         -Wall -Wextra -Wpedantic -Wconversion -Werror -Wno-psabi -Iinclude -isystem "$work/include")

program() {  # program NAME FLAGS...: $work/NAME.elf, of NAME.cpp, without a heap
  local name=$1
  shift
  "${compile[@]}" "$@" -nostartfiles --specs=nano.specs -Wl,--gc-sections -T $here/mps2.ld \
    $here/board.cpp "$here/$name.cpp" -o "$work/$name.elf"
  local heap
  heap=$(arm-none-eabi-nm "$work/$name.elf" |
    awk '$NF ~ /^(_?(malloc|calloc|realloc|free|sbrk)(_r)?|_Zn[wa].*|_Zd[la].*|__cxa_(throw|allocate_exception))$/ { print $NF }')
  [ -z "$heap" ] || { echo "$name.elf has a heap: $heap"; return 1; }
  arm-none-eabi-size "$work/$name.elf" | awk -v n="$name" \
    'NR == 2 { printf "%s: image %d bytes in flash, %d in RAM besides the stack\n", n, $1 + $2, $2 + $3 }'
}

code_size() {  # code_size NAME FLAGS...: bytes of NAME.cpp in flash
  local name=$1
  shift
  "${compile[@]}" "$@" -c "$here/$name.cpp" -o "$work/$name.o"
  arm-none-eabi-size "$work/$name.o" | awk 'NR == 2 { print $1 + $2 }'
}

emulate() {  # emulate NAME: what it prints
  timeout 60 qemu-system-arm -M mps2-an386 -display none -monitor none -serial none \
    -semihosting-config enable=on,target=native -kernel "$work/$1.elf"
}

reader() {
  local size
  size=$(code_size reader_size)
  echo "reader: $size bytes of code"
  [ "$size" -le 4096 ] || { echo "more than 4096"; return 1; }
  "$STELE_EMBEDDED_HOST" prepare examples/data "$work" >"$work/expected.txt"
  program classify -DMODEL="\"$work/model.stele\"" -DIMAGES="\"$work/images.bin\""
  emulate classify >"$work/found.txt" 2>&1 || { cat "$work/found.txt"; return 1; }
  grep '^stack' "$work/found.txt"
  grep -v '^stack' "$work/found.txt" | diff "$work/expected.txt" -
  echo "host and microcontroller take the ten images for: $(tr '\n' ' ' <"$work/expected.txt")"
}

writer() {
  echo "writer: $(code_size writer_size) bytes of code; XXH3-64: $(code_size hash_size)"
  "$STELE_EMBEDDED_HOST" prepare examples/data "$work" >/dev/null
  rm -f "$work/written.stele"
  program write -DIMAGES="\"$work/images.bin\"" -DWRITTEN="\"$work/written.stele\""
  emulate write
  "$STELE_EMBEDDED_HOST" check "$work"
}

case $1 in
  reader | writer) "$1" ;;
  *) echo "usage: run.sh reader|writer FOLDER" >&2; exit 2 ;;
esac
