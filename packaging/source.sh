#!/usr/bin/env bash
# Makes the source packages of the current tree, which git lists:
#
#   build/packages/stele-VERSION.tar.gz   the archive that a release has
#   build/packages/recipes/               the recipes for this archive, without an owner
#   build/packages/debian/                Debian's source package of this archive, with recipes/debian as debian/
#
# packaging/source.sh ARCHIVE [FOLDER]: uses the archive of a release instead, and the folder debian/ that fill.py wrote.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/packages
version=$(sed -n 's/^#define STELE_VERSION_STRING "\(.*\)"/\1/p' include/stele/config.hpp)
mkdir -p "$work"

archive=${1:-}
debian=${2:-}
if [ -z "$archive" ]; then
  archive=$work/stele-$version.tar.gz
  # Equal trees give equal archives. A file that git lists may be deleted in the tree.
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
  done | LC_ALL=C sort -z -u |
    tar -c --no-recursion --null --transform "s,^,stele-$version/,S" --mtime=@0 --owner=0 --group=0 --numeric-owner \
      --mode=u+rwX,go=rX -T - | gzip -9n >"$archive"
fi
if [ -z "$debian" ]; then
  debian=$work/recipes/debian
  rm -rf "$work/recipes"
  packaging/fill.py @OWNER@ "$archive" "$work/recipes" "file://$archive"
fi

rm -rf "$work/debian"
mkdir -p "$work/debian"
cp "$archive" "$work/debian/stele_$version.orig.tar.gz"
tar -xzf "$archive" -C "$work/debian"
tree=$(find "$work/debian" -mindepth 1 -maxdepth 1 -type d)
[ "$tree" = "$work/debian/stele-$version" ] || mv "$tree" "$work/debian/stele-$version"
cp -r "$debian" "$work/debian/stele-$version/debian"
cd "$work/debian"
dpkg-source -b "stele-$version"
