#!/usr/bin/env bash
# Builds six formats as stele.xcframework, for iOS, its simulator and macOS on Arm: packaging/mobile/apple.sh [-D OPTION=VALUE...]
# Runs on a Mac, with Xcode, vcpkg (VCPKG_ROOT), which builds the libraries, CMake 3.22 and Ninja. docs/guide/ios.md
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${VCPKG_ROOT:?the folder of vcpkg}"
parts=()

# preset VARIABLE: a value of the preset bare, which has six formats.
preset() {
  python3 -c 'import json, sys
presets = {preset["name"]: preset for preset in json.load(open("CMakePresets.json"))["configurePresets"]}
print(presets["bare"]["cacheVariables"][sys.argv[1]])' "$1"
}

# slice TRIPLET SYSTEM SDK OLDEST
slice() {
  local folder=$PWD/build/apple/$1 product
  product=$folder/product
  cmake -G Ninja -S . -B "$folder" -D CMAKE_TOOLCHAIN_FILE="$VCPKG_ROOT/scripts/buildsystems/vcpkg.cmake" \
    -D VCPKG_TARGET_TRIPLET="$1" -D VCPKG_MANIFEST_DIR="$PWD/packaging/mobile" \
    -D CMAKE_SYSTEM_NAME="$2" -D CMAKE_OSX_SYSROOT="$3" -D CMAKE_OSX_ARCHITECTURES=arm64 -D CMAKE_OSX_DEPLOYMENT_TARGET="$4" \
    -D CMAKE_BUILD_TYPE=Release -D CMAKE_INSTALL_PREFIX="$product" -D CMAKE_INSTALL_LIBDIR=lib \
    "${options[@]}"
  cmake --build "$folder" --target install
  libtool -static -o "$product/libstele_all.a" "$product"/lib/*.a \
    "$folder/vcpkg_installed/$1/lib/"lib{deflate,hwy,xxhash,z,zstd}.a
  cp -R "$folder/vcpkg_installed/$1/include/boost" "$product/include"  # stele's headers include Boost's
  parts+=(-library "$product/libstele_all.a" -headers "$product/include")
}

options=(-D STELE_FORMATS="$(preset STELE_FORMATS)" -D STELE_INSTALL=ON "$@")
# The oldest systems whose C++ library has std::pmr.
slice arm64-ios iOS iphoneos 17.0
slice arm64-ios-simulator iOS iphonesimulator 17.0
slice arm64-osx Darwin macosx 14.0
rm -rf build/apple/stele.xcframework
xcodebuild -create-xcframework "${parts[@]}" -output build/apple/stele.xcframework
cp packaging/mobile/Package.swift build/apple
