#!/usr/bin/env bash
# Checks the recipes of packaging/, as far as their package managers are at hand; packaging/README.md lists what each
# step shows. Wants build/packages/venv (`make packages`); works in build/packages.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$root/build/packages
recipes=$work/recipes
jobs=${JOBS:-2}
formats=${FORMATS:-safetensors}

step() { printf '== %s\n' "$*"; }
fail() { printf 'packages: %s\n' "$*" >&2; exit 1; }
quietly() {  # quietly COMMAND...: its output only where it fails
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $*"; }
}

# The recipes with the hashes of this tree's archive. They keep the placeholder of the owner.
step "archive and hashes"
mkdir -p "$work"
quietly packaging/source.sh
version=$(sed -n 's/^#define STELE_VERSION_STRING "\(.*\)"/\1/p' include/stele/config.hpp)
archive=$work/stele-$version.tar.gz

step "Python: vcpkg.json, formats, Spack, conda"
"$work/venv/bin/python" packaging/check.py "$recipes"

step "vcpkg: portfile.cmake"
for features in "" "zip" "dl4j;json" "all;dl4j;json;stele-format;tools;zarr;zip"; do
  rm -rf "$work/vcpkg"
  quietly cmake -D "FEATURES=$features" -D "SOURCE=$root" -D "OUT=$work/vcpkg" -P packaging/vcpkg/check.cmake
done

step "Homebrew: stele.rb"
quietly ruby -c "$recipes/homebrew/stele.rb"

# A derivation's attributes, with substitutes for the functions of nixpkgs, and the hash by Nix itself.
step "Nix: package.nix"
nix() { NIX_CONFIG="build-users-group =" NIX_CONF_DIR=$work NIX_STATE_DIR=$work/nix NIX_STORE_DIR=$work/nix/store NIX_LOG_DIR=$work/nix "$@"; }
expression="let package = import $recipes/nix/package.nix; fix = f: let x = f x; in x; given = {
  lib = { cmakeBool = name: value: name; fakeHash = \"\"; licenses.mit = \"\"; platforms.unix = [ ]; };
  stdenv.mkDerivation = fix; fetchFromGitHub = x: x; };
  in (package (builtins.mapAttrs (name: _: given.\${name} or name) (builtins.functionArgs package)))"
quietly nix nix-instantiate --parse "$recipes/nix/package.nix"
quietly nix nix-instantiate --eval --strict --json --expr "$expression"
rm -rf "$work/tree"
mkdir "$work/tree"
tar -xzf "$archive" -C "$work/tree"
hash=$(nix nix-instantiate --eval --strict --json --expr "($expression).src.hash")
expected=$(nix nix-hash --type sha256 "$work/tree/stele-$version" | python3 -c \
  'import base64, sys; print("\"sha256-" + base64.b64encode(bytes.fromhex(sys.stdin.read().strip())).decode() + "\"")')
[ "$hash" = "$expected" ] || fail "packaging/fill.py computed the hash $hash, Nix $expected"

step "Debian: source package"
# Debian's maintainer and the bug of the first upload are not known here.
tags=bogus-mail-host,initial-upload-closes-no-bugs
quietly lintian --allow-root --fail-on error,warning --suppress-tags "$tags" "$work/debian/stele_$version-1.dsc"

step "Conan: create and test_package, formats=$formats, static and shared"
export CONAN_HOME=$work/conan CXX=${CXX:-g++-12}
conan=$work/venv/bin/conan
quietly "$conan" profile detect --force
quietly "$conan" remove --confirm "stele/*"  # of earlier runs
if [ -d build/deps/boost ]; then export Boost_ROOT=$root/build/deps/boost/usr; fi  # see tools/deps.sh
# A range of versions is replaced by its lower bound.
sed -nE 's|.*self\.requires\("([a-z0-9]+)/\[?[~>=]*([0-9.]+).*|\1 \2|p' packaging/conan/all/conanfile.py | while read -r name number; do
  ! grep -q "^    \"$name\":" packaging/conan/system/conanfile.py ||
    quietly "$conan" export packaging/conan/system --name "$name" --version "$number"
done
for command in False True; do  # the requirements of all formats, which are not built
  quietly "$conan" graph info "$recipes/conan/all" --version "$version" -pr packaging/conan/system.profile --no-remote \
    -o "&:formats=all" -o "&:command=$command"
done
for shared in False True; do
  quietly nice -n 10 "$conan" create "$recipes/conan/all" --version "$version" -pr packaging/conan/system.profile --no-remote \
    --build=missing --build="stele/*" -o "&:formats=$formats" -o "&:shared=$shared" -c "tools.build:jobs=$jobs"
  grep "elements$" "$work/log"
done
echo "packages: all checks passed"
