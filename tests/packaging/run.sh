#!/usr/bin/env bash
# Every way to use the library from another project, as docs/guide/install.md tells it, each with a program that saves
# and loads. Wants the presets release and deb built (`make packaging`); works in build/packaging, from scratch. --smoke:
# each component installed, and one with the Debian packages, without builds of the sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
consumer=$root/tests/packaging/consumer
work=$root/build/packaging
jobs=${JOBS:-2}
whole() { [ "$mode" != --smoke ]; }
mode=${1:-}
version=$(sed -n 's/^#define STELE_VERSION_STRING "\(.*\)"/\1/p' include/stele/config.hpp)
rm -rf "$work"
mkdir -p "$work"

export CXX=${CXX:-g++-12} CMAKE_GENERATOR=Ninja
flags=(-std=c++20 -O1)
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
if [ -d build/deps/boost ]; then  # see tools/deps.sh: a user names such a Boost likewise
  export Boost_ROOT=$root/build/deps/boost/usr
  flags+=(-isystem "$Boost_ROOT/include")
fi

fail() { printf 'packaging: %s\n' "$*" >&2; exit 1; }
quietly() {  # quietly COMMAND...: its output only where it fails
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $*"; }
}
run() { (cd "$(dirname "$1")" && LD_LIBRARY_PATH=${libraries:-} "$1"); }

target=()
# Not optimised, and without debug information.
configure() { cmake -S "$consumer" -B "$work/$1" -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG= "${@:2}"; }
with_cmake() {  # with_cmake NAME DEFINITION...
  echo "== $1"
  quietly configure "$1" "${@:2}"
  quietly cmake --build "$work/$1" -j "$jobs" "${target[@]}"
  run "$work/$1/use"
}
refused() {  # refused NAME EXPECTED DEFINITION...: configuring must fail and say so
  echo "== $1"
  if configure "$1" "${@:3}" >"$work/log" 2>&1; then fail "$1 was configured"; fi
  tr -s '\n ' ' ' <"$work/log" | grep -q "$2" || { cat "$work/log" >&2; fail "$1 failed, but not with: $2"; }
}
with_pkg_config() {  # with_pkg_config NAME FOLDER
  echo "== $1"
  mkdir "$work/$1"
  local found  # words, to be split
  found=$(PKG_CONFIG_PATH=$2 pkg-config --cflags --libs "stele = $version")
  # shellcheck disable=SC2086
  quietly "$CXX" "${flags[@]}" "$consumer/all.cpp" -o "$work/$1/use" $found
  run "$work/$1/use"
}
no_path_of_ours() {  # in what is installed or packed; the assertions of QUICK=1 name sources
  if [ -z "${QUICK:-}" ] && grep -rl --binary-files=text -F "$root" "$1"; then fail "the files above name $root"; fi
}

# Static libraries, installed; the prefix is moved before it is used.
quietly cmake --install build/release --prefix "$work/elsewhere"
mv "$work/elsewhere" "$work/prefix"
no_path_of_ours "$work/prefix"

# The command.
use_command() {  # use_command PREFIX: look at a file, convert and compare it; the pages are there
  echo "== command in ${1#"$work"/}"
  local stele=$1/bin/stele file=$root/examples/data/digits.safetensors
  LD_LIBRARY_PATH=${libraries:-} "$stele" --version
  LD_LIBRARY_PATH=${libraries:-} "$stele" inspect "$file" --quiet >"$work/log"
  grep -q "7 tensors" "$work/log" || fail "stele inspect printed: $(cat "$work/log")"
  LD_LIBRARY_PATH=${libraries:-} "$stele" convert "$file" "$work/copy.stele" --quiet
  LD_LIBRARY_PATH=${libraries:-} "$stele" diff "$file" "$work/copy.stele"
  local page
  for page in man/man1/stele.1 bash-completion/completions/stele zsh/vendor-completions/_stele fish/vendor_completions.d/stele.fish; do
    [ -s "$1/share/$page" ] || fail "the command comes without $page"
  done
}
use_command "$work/prefix"
package=(-D WAY=package -D CMAKE_PREFIX_PATH="$work/prefix")

# Every component alone, by a program that calls what its headers declare.
with_cmake find_package "${package[@]}" -D EACH=ON
for program in "$work"/find_package/use_*; do
  if [ -x "$program" ] && [ -f "$program" ]; then run "$program" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $program"; }; fi
done
refused find_package-unknown "stele_FOUND to FALSE" "${package[@]}" -D COMPONENTS=unknown
refused find_package-misspelt "did you mean safetensors_file or safetensors?" "${package[@]}" -D COMPONENTS=safetensor
# A component asks for the packages of what it needs only: transforms for RE2, which the others do not need, and so on.
without() { printf -- '-DCMAKE_DISABLE_FIND_PACKAGE_%s=ON\n' "$@"; }
mapfile -t no_re2 < <(without re2)
mapfile -t highway_only < <(without re2 xxHash SteleBoost)
mapfile -t boost_only < <(without re2 xxHash hwy Protobuf)
refused find_package-without "re2" "${package[@]}" "${no_re2[@]}"
with_cmake find_package-safetensors "${package[@]}" "${no_re2[@]}" -D COMPONENTS=safetensors
if whole; then
mapfile -t no_zstd < <(without re2 zstd Protobuf)
for component in archive samediff nnef burn onnx paddle tensorflow; do
  with_cmake "find_package-$component" "${package[@]}" "${no_zstd[@]}" -D COMPONENTS="$component"
done
with_cmake find_package-precision "${package[@]}" "${highway_only[@]}" -D COMPONENTS=precision
with_pkg_config pkg-config "$work/prefix/lib/pkgconfig"

# Sources: what git has, in a repository of its own. The second way uses the first one's checkout,
# which is at the same relative path from all build folders: ccache compares these.
mkdir "$work/source"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$work/source"
git=(git -C "$work/source" -c user.name=stele -c user.email=stele@localhost -c commit.gpgsign=false)
quietly "${git[@]}" init -q -b main
quietly "${git[@]}" add -A
quietly "${git[@]}" commit -q -m "The tree under test"
# All targets are configured; what one program needs is built, since the other components build like it.
target=(--target use)
with_cmake fetch -D WAY=fetch -D COMPONENTS=safetensors -D STELE_SOURCE="file://$work/source" \
  -D FETCHCONTENT_BASE_DIR="$work/deps"
with_cmake subdirectory -D WAY=subdirectory -D COMPONENTS=safetensors \
  -D STELE_SOURCE="$work/deps/stele-src"
target=()

# Some formats only: without the packages of the others.
mapfile -t few < <(without re2 zstd ZLIB libdeflate Protobuf)
with_cmake subdirectory-formats "${few[@]}" -D WAY=subdirectory -D COMPONENTS=safetensors -D EACH=ON \
  -D STELE_FORMATS="safetensors;gguf" -D STELE_FLATC=none -D STELE_SOURCE="$work/deps/stele-src"
refused subdirectory-unknown "no format has the name \"tensors\"" -D WAY=subdirectory \
  -D STELE_FORMATS=tensors -D STELE_SOURCE="$work/deps/stele-src"
fi

# The Debian packages, unpacked into a root of their own: one shared library.
echo "== deb"
debs=$root/build/deb
field() { dpkg-deb -f "$debs/$1" "$2"; }
library=$(cd "$debs" && echo libstele[0-9]*.deb)
development=$(cd "$debs" && echo libstele-dev_*.deb)
for package in libhwy1 libre2-9 libxxhash0 zlib1g libdeflate0 libprotobuf32 libstdc++6; do
  field "$library" Depends | grep -qF "$package" || fail "$library does not depend on $package"
done
for package in "$(field "$library" Package) (= $version)" "libboost1.81-dev | libboost-dev (>= 1.81)"; do
  field "$development" Depends | grep -qF "$package" || fail "$development does not depend on $package"
done
tools=$(cd "$debs" && echo stele-tools_*.deb)
for package in "$(field "$library" Package) (= $version)" libssl3 libstdc++6; do
  field "$tools" Depends | grep -qF "$package" || fail "$tools does not depend on $package"
done
tests/packaging/abi/check.sh build/deb/libstele.so
mkdir "$work/root"
for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
no_path_of_ours "$work/root"
libraries=$(dirname "$(find "$work/root/usr/lib" -name libstele.so)")
use_command "$work/root/usr"
deb=(-D WAY=package -D CMAKE_PREFIX_PATH="$work/root/usr")
with_cmake deb-find_package-safetensors "${deb[@]}" -D COMPONENTS=safetensors
if whole; then
  with_cmake deb-find_package "${deb[@]}" "${boost_only[@]}"
  with_pkg_config deb-pkg-config "$libraries/pkgconfig"
  echo "packaging: all ways work"
fi
