#!/usr/bin/env bash
# Installs the missing system packages of tools/packages.txt. Never removes a package.
#
#   tools/deps.sh build       packages of the build and the demo
#   tools/deps.sh all         also packages of tests, fuzzing and CI
#   tools/deps.sh torch       additional packages of `make torch` and `make interop-pytorch`
#   tools/deps.sh mpi         additional packages of `make mpi`
#   tools/deps.sh dl4j        additional packages of `make interop-dl4j` and `make strangers`
#   tools/deps.sh api         packages of `make api`
#   tools/deps.sh embedded    additional packages of `make embedded`
#   tools/deps.sh browser     packages of `make report-test` and `make viewer-test`
#   tools/deps.sh foreign     additional packages of `make foreign`
#   tools/deps.sh emulator    additional packages of `make zig`
#   tools/deps.sh remote      additional packages of `make remote`
#   tools/deps.sh libcxx      additional packages of `make libcxx`
#   tools/deps.sh python      additional packages of `make python` and `make wheel`
#   tools/deps.sh module      additional packages of `make module`
#   tools/deps.sh abi         additional packages of `tools/abi.sh`
#   tools/deps.sh packages    additional packages of `make packages`
#   tools/deps.sh cross       additional packages of `tools/cross_deps.sh`
#   tools/deps.sh windows     additional packages of `make windows`; windows-smoke: of `make windows-smoke`
#
# Boost must be 1.81 or newer. If another Boost -dev package conflicts with libboost1.81-dev, the headers of 1.81 are
# unpacked below build/deps/boost, where CMake looks first. STELE_PRIVATE_BOOST=1 always unpacks them.
set -euo pipefail
cd "$(dirname "$0")/.."

group=${1:-all}
if [ "$group" != all ] && ! grep -q "^\[$group\]" tools/packages.txt; then
  echo "usage: tools/deps.sh [all|$(sed -n 's/^\[\(.*\)\].*/\1/p' tools/packages.txt | paste -sd '|')]" >&2
  exit 2
fi

list() {  # "package probe" lines of the wanted groups
  awk -v want="$group" '{ sub(/#.*/, "") }
    /^\[/ { sub(/ *$/, ""); on = $0 == "[" want "]" || (want == "all" && ($0 == "[build]" || $0 == "[test]")); next }
    NF && on { print $1, $2 }' tools/packages.txt
}

boost_private=build/deps/boost/usr/include/boost/version.hpp
boost_version() { [ -r "$1" ] && sed -n 's/^#define BOOST_VERSION \([0-9]*\).*/\1/p' "$1" || true; }
boost_new_enough() { local v; v=$(boost_version "$1"); [ "${v:-0}" -ge 108100 ]; }
boost_there() {
  if [ -n "${STELE_PRIVATE_BOOST:-}" ]; then boost_new_enough "$boost_private"; return; fi
  boost_new_enough "$boost_private" || boost_new_enough /usr/include/boost/version.hpp ||
    boost_new_enough /usr/local/include/boost/version.hpp
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  missing=()
  while read -r package probe; do
    case $probe in
      '<boost/'*) boost_there || missing+=("$package (Boost 1.81 or newer)") ;;
      '<'*) echo "#include $probe" | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1 || missing+=("$package ($probe)") ;;
      *) command -v "$probe" >/dev/null || missing+=("$package ($probe)") ;;
    esac
  done < <(list)
  [ ${#missing[@]} -eq 0 ] && exit 0
  echo "This is not a Debian system, so nothing was installed. Missing, by the names of Debian 12:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi

installed=" $(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | awk '$1 == "installed" { printf "%s ", $2 }')"
missing=()
boost=
while read -r package _; do
  if [ "$package" = libboost1.81-dev ]; then
    boost_there || boost=$package
  else
    case $installed in *" $package "*) ;; *) missing+=("$package") ;; esac
  fi
done < <(list)
[ ${#missing[@]} -eq 0 ] && [ -z "$boost" ] && exit 0

echo "deps: missing: ${missing[*]-} $boost"
if [ "$(id -u)" -ne 0 ]; then
  echo "deps: not root; run this once: sudo tools/deps.sh $group" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@" </dev/null; }
apt update

if [ -n "$boost" ] && [ -z "${STELE_PRIVATE_BOOST:-}" ] && apt install -s --no-remove "$boost" >/dev/null 2>&1; then
  missing+=("$boost")
  boost=
fi
if [ ${#missing[@]} -gt 0 ]; then
  apt install -y --no-install-recommends --no-remove "${missing[@]}"
fi
if [ -n "$boost" ]; then
  echo "deps: unpacking the headers of $boost below build/deps/boost; installed packages stay as they are"
  mkdir -p build/deps
  scratch=$(mktemp -d build/deps/boost.XXXXXX)
  trap 'rm -rf "$scratch"' EXIT
  (cd "$scratch" && apt -o APT::Sandbox::User=root download "$boost")
  dpkg-deb -x "$scratch"/*.deb "$scratch/root"
  rm -rf build/deps/boost
  mv "$scratch/root" build/deps/boost
  boost_new_enough "$boost_private" || { echo "deps: $boost holds no Boost 1.81 headers" >&2; exit 1; }
fi
