#!/usr/bin/env bash
# Builds six formats and their tests for Android: packaging/mobile/android.sh arm64-v8a|armeabi-v7a|x86_64 [-D OPTION=VALUE...]
# Needs the NDK (ANDROID_NDK_HOME), vcpkg (VCPKG_ROOT), which builds the libraries, CMake 3.22 and Ninja. docs/guide/android.md
set -euo pipefail
cd "$(dirname "$0")/../.."
abi=${1:-}
: "${ANDROID_NDK_HOME:?the folder of the NDK}" "${VCPKG_ROOT:?the folder of vcpkg}"
case $abi in
  arm64-v8a) triplet=arm64-android machine=arm64 ;;
  armeabi-v7a) triplet=arm-neon-android machine=arm ;;
  x86_64) triplet=x64-android machine=x64 ;;
  *) echo "usage: packaging/mobile/android.sh arm64-v8a|armeabi-v7a|x86_64 [-D OPTION=VALUE...]" >&2; exit 2 ;;
esac
level=24
folder=$PWD/build/android-$abi

# preset VARIABLE: a value of the preset bare, which has six formats and their tests.
preset() {
  python3 -c 'import json, sys
presets = {preset["name"]: preset for preset in json.load(open("CMakePresets.json"))["configurePresets"]}
print(presets["bare"]["cacheVariables"][sys.argv[1]])' "$1"
}

# vcpkg's own triplets are for a newer level.
mkdir -p "$folder/triplets"
cat >"$folder/triplets/$triplet.cmake" <<EOF
set(VCPKG_TARGET_ARCHITECTURE $machine)
set(VCPKG_CRT_LINKAGE static)
set(VCPKG_LIBRARY_LINKAGE static)
set(VCPKG_CMAKE_SYSTEM_NAME Android)
set(VCPKG_CMAKE_SYSTEM_VERSION $level)
set(VCPKG_CMAKE_CONFIGURE_OPTIONS -DANDROID_ABI=$abi)
EOF

cmake -G Ninja -S . -B "$folder" \
  -D CMAKE_TOOLCHAIN_FILE="$VCPKG_ROOT/scripts/buildsystems/vcpkg.cmake" \
  -D VCPKG_CHAINLOAD_TOOLCHAIN_FILE="$ANDROID_NDK_HOME/build/cmake/android.toolchain.cmake" \
  -D VCPKG_OVERLAY_TRIPLETS="$folder/triplets" -D VCPKG_TARGET_TRIPLET="$triplet" -D VCPKG_MANIFEST_DIR="$PWD/packaging/mobile" \
  -D ANDROID_ABI="$abi" -D ANDROID_PLATFORM="android-$level" -D ANDROID_STL=c++_static \
  -D CMAKE_EXE_LINKER_FLAGS=-Wl,-z,max-page-size=16384 -D CMAKE_SHARED_LINKER_FLAGS=-Wl,-z,max-page-size=16384 \
  -D CMAKE_BUILD_TYPE=Release -D STELE_FORMATS="$(preset STELE_FORMATS)" -D STELE_TESTS=ON -D STELE_SOURCE_CHECKS=OFF \
  -D STELE_TEST_FILES="$(preset STELE_TEST_FILES)" "${@:2}"
cmake --build "$folder"
