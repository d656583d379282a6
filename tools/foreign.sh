#!/usr/bin/env bash
# Runs tests on another architecture under QEMU's emulation of programs: tools/foreign.sh s390x|arm64|armhf|i386 [JOBS].
# s390x is big-endian, armhf and i386 have 32 bits. Debian's libraries for it are unpacked below build/, together
# with their package lists, so that the system does not change.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-}
jobs=${2:-2}
case $arch in  # Debian's names: of the compiler's target, of the machine in QEMU
  s390x) triplet=s390x-linux-gnu machine=s390x ;;
  arm64) triplet=aarch64-linux-gnu machine=aarch64 ;;
  armhf) triplet=arm-linux-gnueabihf machine=arm ;;
  i386) triplet=i686-linux-gnu machine=i386 ;;
  *) echo "usage: tools/foreign.sh s390x|arm64|armhf|i386 [JOBS]" >&2; exit 2 ;;
esac
folder=$PWD/build/$triplet
tests=$(sed "/^#/d" tests/foreign.txt | paste -sd ";")

if [ ! "$folder/sysroot/complete" -nt tools/foreign.sh ]; then  # its list of packages may have changed
  rm -rf "$folder/apt" "$folder/sysroot"
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
  cat >"$folder/apt/apt.conf" <<EOF
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State::Lists "$folder/apt/lists";
Dir::Cache "$folder/apt";
EOF
  export APT_CONFIG=$folder/apt/apt.conf
  apt-get -q -o Acquire::Retries=3 update || echo "foreign: a list is missing; enough if the packages below are found"
  (cd "$folder/apt/archives" && apt-get -q -o Acquire::Retries=3 download \
    libhwy-dev libhwy1 libre2-dev libre2-9 libxxhash-dev libxxhash0 libzstd-dev libzstd1 \
    zlib1g-dev zlib1g libdeflate-dev libdeflate0)
  for package in "$folder"/apt/archives/*.deb; do dpkg-deb -x "$package" "$folder/sysroot"; done
  unset APT_CONFIG
  touch "$folder/sysroot/complete"
fi

cmake --preset dev -B "$folder/build" -D CMAKE_TOOLCHAIN_FILE="$PWD/cmake/foreign.cmake" -D STELE_TRIPLET="$triplet" \
  -D CMAKE_CXX_COMPILER="$triplet-g++" -D CMAKE_CXX_FLAGS=-Wno-psabi \
  -D STELE_SOURCE_CHECKS=OFF -D STELE_EXAMPLES=OFF -D STELE_COMMAND=OFF -D CMAKE_DISABLE_FIND_PACKAGE_Protobuf=ON \
  -D STELE_TEST_FILES="$tests"
cmake --build "$folder/build" -j "$jobs" --target stele_tests
run=("qemu-$machine" -L "/usr/$triplet")
if [ "$arch" = i386 ] && [ "$(uname -m)" = x86_64 ]; then  # the machine runs it itself
  run=("/usr/$triplet/lib/ld-linux.so.2" --library-path "/usr/$triplet/lib:$folder/sysroot/usr/lib/i386-linux-gnu")
fi
# QEMU cannot list folders of ext4 for programs of 32 bits: its offsets in a folder have 64.
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm
cd tests
"${run[@]}" "$folder/build/tests/stele_tests"
