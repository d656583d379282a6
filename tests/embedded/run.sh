#!/usr/bin/env bash
# Builds programs for a Cortex-M4 or a RISC-V microcontroller, runs them under QEMU and compares with the host. CMake sets
# STELE_EMBEDDED_HOST (the program of host.cpp), STELE (the command) and STELE_INCLUDES (the folders that hold boost/ and
# xxhash.h, separated by colons).
#
#   run.sh reader FOLDER        a model read in place from flash, on the Cortex-M4
#   run.sh writer FOLDER        a model written in fixed memory, compared with what the host writes
#   run.sh embed-arm FOLDER     the models that `stele embed` makes: a header, and an object file
#   run.sh embed-riscv FOLDER   the same on RISC-V (rv32imac)
#
# What is built goes to FOLDER. Exit status 77 where tools are missing; with STELE_NEVER_SKIP=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${STELE_EMBEDDED_HOST:?the host program: make embedded}" "${STELE_INCLUDES:?folders: make embedded}"
part=$1
work=$2
here=tests/embedded

case $part in
  reader | writer | embed-arm) tools=arm-none-eabi qemu=qemu-system-arm ;;
  embed-riscv) tools=riscv64-unknown-elf qemu=qemu-system-riscv32 ;;
  *) echo "usage: run.sh reader|writer|embed-arm|embed-riscv FOLDER" >&2; exit 2 ;;
esac

skip() {
  echo "skipped: $1: make deps-embedded"
  [ -z "${STELE_NEVER_SKIP:-}" ] || exit 1
  exit 77
}
for tool in $tools-g++ $tools-nm $tools-size $qemu; do
  command -v "$tool" >/dev/null || skip "$tool is missing"
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
compile=("$tools-g++" -std=c++20 -Os -fno-exceptions -fno-rtti -ffunction-sections -fdata-sections -DSTELE_HEAP=0
         -Wall -Wextra -Wpedantic -Wconversion -Werror -Wno-psabi -Iinclude -isystem "$work/include" -I "$work")
if [ "$tools" = arm-none-eabi ]; then
  compile+=(-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16)
  link=(--specs=nano.specs -T $here/mps2.ld)
  libraries=()
  emulator=(-M mps2-an386)
else
  compile+=(-march=rv32imac -mabi=ilp32 --specs=picolibc.specs)
  # Debian's compiler for RISC-V comes without libstdc++; the headers of the one for Arm, of the same GCC, serve it.
  library=$(ls -d /usr/include/newlib/c++/*/arm-none-eabi 2>/dev/null | tail -n 1)
  [ -n "$library" ] || skip "libstdc++ is missing"
  compile+=(-isystem "$(dirname "$library")" -isystem "$library")
  link=(-T $here/virt.ld -nodefaultlibs)
  libraries=(-lc -lgcc)
  emulator=(-M virt -bios none)
fi

program() {  # program NAME SOURCE [FLAGS...]: $work/NAME.elf, of SOURCE, without a heap
  local name=$1 source=$2
  shift 2
  "${compile[@]}" -nostartfiles -Wl,--gc-sections "${link[@]}" "$@" $here/board.cpp "$here/$source.cpp" "${libraries[@]}" \
    -o "$work/$name.elf"
  local heap
  heap=$("$tools-nm" "$work/$name.elf" |
    awk '$NF ~ /^(_?(malloc|calloc|realloc|free|sbrk)(_r)?|_Zn[wa].*|_Zd[la].*|__cxa_(throw|allocate_exception))$/ { print $NF }')
  [ -z "$heap" ] || { echo "$name.elf has a heap: $heap"; return 1; }
  "$tools-size" "$work/$name.elf" | awk -v n="$name" \
    'NR == 2 { printf "%s: image %d bytes in flash, %d in RAM besides the stack\n", n, $1 + $2, $2 + $3 }'
}

code_size() {  # code_size NAME FLAGS...: bytes of NAME.cpp in flash
  local name=$1
  shift
  "${compile[@]}" "$@" -c "$here/$name.cpp" -o "$work/$name.o"
  "$tools-size" "$work/$name.o" | awk 'NR == 2 { print $1 + $2 }'
}

emulate() {  # emulate NAME: what it prints
  timeout 60 "$qemu" "${emulator[@]}" -display none -monitor none -serial none \
    -semihosting-config enable=on,target=native -kernel "$work/$1.elf"
}

classified() {  # classified NAME: the program's digits are those of the host
  emulate "$1" >"$work/found.txt" 2>&1 || { cat "$work/found.txt"; return 1; }
  grep '^stack' "$work/found.txt"
  grep -v '^stack' "$work/found.txt" | diff "$work/expected.txt" -
  echo "host and microcontroller take the ten images for: $(tr '\n' ' ' <"$work/expected.txt")"
}

reader() {
  local size
  size=$(code_size reader_size)
  echo "reader: $size bytes of code"
  [ "$size" -le 4096 ] || { echo "more than 4096"; return 1; }
  "$STELE_EMBEDDED_HOST" prepare examples/data "$work" >"$work/expected.txt"
  program classify classify -DMODEL="\"$work/model.stele\"" -DIMAGES="\"$work/images.bin\""
  classified classify
}

writer() {
  echo "writer: $(code_size writer_size) bytes of code; XXH3-64: $(code_size hash_size)"
  "$STELE_EMBEDDED_HOST" prepare examples/data "$work" >/dev/null
  rm -f "$work/written.stele"
  program write write -DIMAGES="\"$work/images.bin\"" -DWRITTEN="\"$work/written.stele\""
  emulate write
  "$STELE_EMBEDDED_HOST" check "$work"
}

embed() {
  : "${STELE:?the command: make embedded}"
  "$STELE_EMBEDDED_HOST" prepare examples/data "$work" >"$work/expected.txt"
  local images=(-DIMAGES="\"$work/images.bin\"")
  "$STELE" embed examples/data/digits.safetensors -o "$work/digits.hpp" --name digits --precision f16 -q
  program header classify -DMODEL_HEADER='"digits.hpp"' "${images[@]}"
  classified header
  "$STELE" embed examples/data/digits.safetensors -o "$work/object.hpp" --name digits --precision f16 --object -q
  program object classify -DMODEL_HEADER='"object.hpp"' "${images[@]}" -Wa,-I"$work" "$work/object.S"
  classified object
}

"${part%%-*}"
