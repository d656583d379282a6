#!/usr/bin/env bash
# Builds the libraries that stele needs on another system, as static libraries in build/TARGET/sysroot, where
# cmake/windows.cmake or cmake/zig.cmake finds them. The sources are Debian's source packages, kept in build/cross-sources for all targets.
# Packages that consist of headers are links to this machine's. protoc and flatc are this machine's programs.
#
#   tools/cross_deps.sh windows          libraries for 64-bit Windows, by MinGW
#   tools/cross_deps.sh aarch64-macos    libraries for a target of zig, which tools/zig.sh fetches before it calls this
#
# Runs JOBS compilers at a time, by default 2. A library is skipped if it was built from the same source by the same
# recipe. To take newer sources, delete build/cross-sources; after a change of the toolchain file, delete the sysroot.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-}
toolchain=("-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/zig.cmake" "-DSTELE_ZIG_TARGET=$target")
libraries=(zlib zstd libdeflate xxhash highway re2 protobuf openssl)
case $target in  # OpenSSL's name of the target; CMake builds the other libraries
  windows) openssl_target=mingw64 toolchain=("-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/windows.cmake") ;;
  aarch64-macos) openssl_target=darwin64-arm64-cc ;;
  x86_64-macos) openssl_target=darwin64-x86_64-cc ;;
  x86_64-linux-*) openssl_target=linux-x86_64 ;;
  aarch64-linux-*) openssl_target=linux-aarch64 ;;
  riscv64-linux-*) openssl_target=linux64-riscv64 ;;
  wasm32-wasi) libraries=(zlib zstd libdeflate xxhash highway) ;;
  *) echo "usage: [JOBS=2] tools/cross_deps.sh windows | a target of tools/zig.sh" >&2; exit 2 ;;
esac
jobs=${JOBS:-2}
root=$PWD
sources=$root/build/cross-sources
sysroot=$root/build/$target/sysroot
work=$root/build/$target/deps  # the build folder of one library at a time
headers=(boost cereal CLI doctest eigen3 flatbuffers xtensor xtl)

# --- sources ---

# Configures apt, with lists of its own, for the source packages of the release that this machine runs: from the servers
# and with the keys that it uses for binary packages. Backports are left out: they are newer than the installed packages.
prepare_apt() {
  local codename file suite
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  rm -rf "$sources/apt"
  mkdir -p "$sources"/apt/{lists,archives}/partial "$sources/apt/sources"
  suite="(^|\n)Suites:([^\n]*[ \t])?$codename([-/ \t\n]|\$)"
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -r "$file" ] || continue
    awk -v RS= -v ORS='\n\n' -v suite="$suite" -v newer="$codename-(backports|proposed)[^ \t\n]*" '{ gsub(newer, "") }
      $0 ~ suite && !/(^|\n)Enabled: *no/ { sub(/Types:[^\n]*/, "Types: deb-src"); print }' "$file" \
      >"$sources/apt/sources/$(basename "$file")"
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -r "$file" ] || continue
    sed -En "/$codename-(backports|proposed)/d; s,^deb( .* $codename([-/][^ ]*)? .*),deb-src\\1,p" "$file" \
      >"$sources/apt/sources/$(basename "$file" .list).list"
  done
  cat >"$sources/apt/apt.conf" <<EOF
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::Cache "$sources/apt";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$sources/apt/sources";
Dir::State::Lists "$sources/apt/lists";
EOF
  APT_CONFIG=$sources/apt/apt.conf apt-get -q update
}

# fetch NAME PACKAGE: unpacks Debian's source package, with Debian's patches, as build/cross-sources/NAME. Takes the
# newest version that can be fetched: a server's list can be ahead of its files.
fetch() {
  local new=$sources/$1.new version
  export APT_CONFIG=$sources/apt/apt.conf
  for version in $(apt-cache showsrc --only-source "$2" | sed -n 's/^Version: //p' | sort -ruV); do
    rm -rf "$new"
    mkdir "$new"
    cd "$new"
    if apt-get -q source --download-only "$2=$version"; then
      dpkg-source --no-check -x ./*.dsc source  # apt has compared the files with the signed list
      mv source "$sources/$1"
      rm -r "$new"
      return
    fi
    echo "cross_deps: $2 $version cannot be fetched: trying an older version" >&3
  done
  echo "$2: no version can be fetched"
  return 1
}

# --- recipes: each runs in an empty folder ---

# configure SOURCE OPTION...
configure() {
  local flags="-O2 -DNDEBUG -ffile-prefix-map=$sources=."
  cmake -G Ninja -Wno-dev -S "$1" -B . "${toolchain[@]}" -D CMAKE_INSTALL_PREFIX="$sysroot" \
    -D CMAKE_INSTALL_LIBDIR=lib -D CMAKE_BUILD_TYPE=Release -D CMAKE_C_FLAGS_RELEASE="$flags" \
    -D CMAKE_CXX_FLAGS_RELEASE="$flags" -D CMAKE_POSITION_INDEPENDENT_CODE=ON -D BUILD_SHARED_LIBS=OFF \
    -D BUILD_TESTING=OFF "${@:2}"
}
compile() { cmake --build . -j "$jobs" --target "$@"; }

# c_library NAME FOLDER HEADERS SOURCES: for libraries whose CMakeLists.txt is missing or leaves out sources.
c_library() {
  mkdir project
  cat >project/CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.25)
project($1 C)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(headers $3)
set(sources $4)
list(TRANSFORM headers PREPEND "$2/")
list(TRANSFORM sources PREPEND "$2/")
file(GLOB sources \${sources})
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(AMD64|x86_64|i.86)\$")
  list(FILTER sources EXCLUDE REGEX "_x86dispatch[.]c\$")
endif()
add_library($1 STATIC \${sources})
target_include_directories($1 PRIVATE "$2")
install(TARGETS $1)
install(FILES \${headers} TYPE INCLUDE)
EOF
  configure project
  compile install
}

recipe_zlib() {  # its CMake project installs the shared library, too, and names a resource that Debian leaves out
  mkdir -p "$sources/zlib/win32"
  touch "$sources/zlib/win32/zlib1.rc"
  configure "$sources/zlib" -D CMAKE_C_FLAGS=-Dfdopen=fdopen  # keeps zutil.h from replacing it on macOS
  compile zlibstatic
  cp libz*.a "$sysroot/lib/libz.a"
  cp zconf.h "$sources/zlib/zlib.h" "$sysroot/include"
}

recipe_zstd() {
  configure "$sources/zstd/build/cmake" -D ZSTD_BUILD_SHARED=OFF -D ZSTD_BUILD_PROGRAMS=OFF
  compile install
}

recipe_libdeflate() { c_library deflate "$sources/libdeflate" libdeflate.h "lib/*.c lib/*/cpu_features.c"; }

recipe_xxhash() {  # as Debian's: on x86-64, with the choice of instructions at run time
  c_library xxhash "$sources/xxhash" "xxhash.h xxh3.h xxh_x86dispatch.h" "xxhash.c xxh_x86dispatch.c"
}

recipe_highway() {
  sed -i '/rv64gcv1p0/d; /menable-experimental-extensions/d' "$sources/highway/CMakeLists.txt"  # clang 22 refuses both
  configure "$sources/highway" -D HWY_ENABLE_CONTRIB=OFF -D HWY_ENABLE_EXAMPLES=OFF -D HWY_ENABLE_TESTS=OFF
  compile hwy hwy_test  # hwy_list_targets is left out
  cmake --install .
}

recipe_re2() {  # Debian leaves out the tables, which these scripts make from Debian's Unicode data
  local folder=$sources/re2/re2 table
  sed -i 's/^from six.moves import urllib/import urllib.request/' "$folder/unicode.py"
  perl "$folder/make_perl_groups.pl" >"$folder/perl_groups.cc"
  for table in unicode_casefold unicode_groups; do python3 "$folder/make_$table.py" >"$folder/$table.cc"; done
  configure "$sources/re2" -D RE2_BUILD_TESTING=OFF
  compile install
}

recipe_protobuf() {  # without the lite library, which its package for CMake requires: FindProtobuf.cmake does not
  configure "$sources/protobuf" -D protobuf_BUILD_TESTS=OFF -D protobuf_BUILD_PROTOC_BINARIES=OFF -D protobuf_WITH_ZLIB=OFF
  compile libprotobuf
  local part
  for part in libprotobuf protobuf-headers protobuf-protos; do cmake --install . --component "$part"; done
}

recipe_openssl() {
  mkdir project  # it writes down the compiler of the toolchain file
  cat >project/CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(compiler C)
file(CONFIGURE OUTPUT compiler.sh @ONLY CONTENT
"export CC='@CMAKE_C_COMPILER@ @CMAKE_C_COMPILER_ARG1@' CFLAGS='@CMAKE_C_FLAGS@ -O2'
export AR='@CMAKE_AR@' RANLIB='@CMAKE_RANLIB@' RC='@CMAKE_RC_COMPILER@'
")
EOF
  configure project
  # shellcheck disable=SC1091
  . ./compiler.sh
  mkdir build
  cd build
  # stele calls digests alone: leaves out large parts that they do not need.
  "$sources/openssl/Configure" "$openssl_target" --prefix=/usr --openssldir=/usr/lib/ssl no-shared no-tests no-module \
    no-engine no-legacy no-dso no-async no-cmp no-cms no-ct no-dh no-dsa no-ec no-ocsp no-srp no-ts
  make -j "$jobs" build_generated
  make -j "$jobs" libcrypto.a
  cp libcrypto.a "$sysroot/lib"
  mkdir -p "$sysroot/include/openssl"
  cp "$sources"/openssl/include/openssl/*.h include/openssl/*.h "$sysroot/include/openssl"
}

# --- the work ---

# Links the headers of this machine, and copies the files by which CMake finds them.
link_headers() {
  local stamp=$sysroot/stamp/headers recipe name folder found config
  recipe=$(declare -f link_headers | cksum)
  if [ -r "$stamp" ] && [ "$(<"$stamp")" = "$recipe" ]; then return; fi
  for name in "${headers[@]}"; do
    found=
    for folder in build/deps/boost/usr/include /usr/include /usr/local/include; do
      if [ -d "$folder/$name" ]; then found=$folder/$name; break; fi
    done
    [ -n "$found" ] || { echo "cross_deps: the headers of $name are missing: tools/deps.sh all" >&2; exit 1; }
    case $found in  # a relative link stays valid when the whole folder build/ moves
      build/*) found=$(realpath -m --relative-to="$sysroot/include" "$found") ;;
    esac
    ln -sfn "$found" "$sysroot/include/$name"
  done
  for config in lib/cmake/doctest share/cmake/CLI11 share/eigen3/cmake share/cmake/xtl; do
    rm -rf "${sysroot:?}/$config"
    mkdir -p "$(dirname "$sysroot/$config")"
    cp -r "/usr/$config" "$sysroot/$config"
  done
  # Debian's file for doctest names its prefix. Each of these files is three folders below its own.
  # shellcheck disable=SC2016
  sed -i 's,^set(_IMPORT_PREFIX "/usr"),get_filename_component(_IMPORT_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE),' \
    "$sysroot"/{lib/cmake/doctest,share/{cmake/*,eigen3/cmake}}/*.cmake
  # Debian's file for xtensor refers to the folder of this machine's architecture.
  mkdir -p "$sysroot/lib/cmake/xtensor"
  cat >"$sysroot/lib/cmake/xtensor/xtensorConfig.cmake" <<'EOF'
include(CMakeFindDependencyMacro)
find_dependency(xtl)
if(NOT TARGET xtensor)
  add_library(xtensor INTERFACE IMPORTED)
  target_link_libraries(xtensor INTERFACE xtl)
endif()
EOF
  echo "$recipe" >"$stamp"
}

# logged LOG COMMAND...: runs the command in a subshell that ends at the first failure. On failure, ends this script.
logged() {
  local status
  set +e  # `if` or `||` would make the subshell go on
  (set -e; "${@:2}") 3>&2 >"$1" 2>&1
  status=$?
  set -e
  if [ $status -ne 0 ]; then
    tail -n 40 "$1" >&2
    echo "cross_deps: failed; the whole log is $1" >&2
    exit 1
  fi
}

in_folder() {
  cd "$1"
  "${@:2}"
}

# build NAME PACKAGE
apt_ready=
build() {
  local name=$1 package=$2 stamp=$sysroot/stamp/$1 recipe version start file
  recipe=$(declare -f "recipe_$name" configure compile c_library | cksum)
  if [ -r "$stamp" ] && [ "$(sed -n 2p "$stamp")" = "$recipe" ] && [ ! -d "$sources/$name" ]; then return; fi
  if [ ! -d "$sources/$name" ]; then
    [ -n "$apt_ready" ] || logged "$sources/apt.log" prepare_apt
    apt_ready=1
    logged "$sources/$name.log" fetch "$name" "$package"
  fi
  version=$(dpkg-parsechangelog -l "$sources/$name/debian/changelog" -S Version)
  if [ -r "$stamp" ] && [ "$(<"$stamp")" = "$version"$'\n'"$recipe" ]; then return; fi
  echo "cross_deps: building $package $version for $target"
  start=$SECONDS
  rm -rf "$work"
  mkdir -p "$work"
  logged "$sysroot/log/$name.log" in_folder "$work" "recipe_$name"
  rm -rf "$work"
  for file in "$sysroot"/{lib,share}/pkgconfig/*.pc; do  # the sysroot may be moved
    [ ! -e "$file" ] || sed -i "s,$sysroot,\${pcfiledir}/../..,g" "$file"
  done
  printf '%s\n' "$version" "$recipe" >"$stamp"
  echo "cross_deps: $name took $((SECONDS - start)) s"
}

mkdir -p "$sources" "$sysroot"/{include,lib,log,stamp}
link_headers
for name in "${libraries[@]}"; do
  case $name in
    zstd) build zstd libzstd ;;
    *) build "$name" "$name" ;;
  esac
done
if grep -rlF -e "$root" -e '"/usr' "$sysroot"/{lib,share} --include='*.cmake' --include='*.pc'; then
  echo "cross_deps: these files contain paths of this machine" >&2
  exit 1
fi
