#!/usr/bin/env bash
# SameDiff files, both ways, against DL4J 1.0.0-M2.1: DL4J makes files (and the same bytes as the golden ones), we read
# and write them, DL4J reads those and compares values, outputs, training and one more step of it. Also what a zip
# file's other readers say of ours, and Java of our manifests.
#
#   dl4j.sh BUILD    BUILD: a build folder with tests/interop_samediff and tests/interop_operators
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../../.."
work=$PWD/build/interop/dl4j
mkdir -p "$work"
mvn -q -B -f tests/formats/samediff/interop/dl4j/pom.xml package -DbuildDirectory="$work"
java=(java -cp "$work/classes:$work/lib/*")

files=$work/files
rm -rf "$files"
mkdir -p "$files"/{theirs,ours,own,arrays}
"${java[@]}" stele.MakeFiles "$files/theirs"
# DL4J's convolution adds in another order on another processor: what it has trained may differ in the last bits of a few
# floats (big-endian, aligned).
nearly() {
  [ "$(stat -c %s "$1")" = "$(stat -c %s "$2")" ] && { cmp -l "$1" "$2" || true; } | awk '
    function octal(text) { return substr(text, 1, length(text) - 2) * 64 + substr(text, length(text) - 1, 1) * 8 + substr(text, length(text)) }
    { d = octal($2) - octal($3); if ($1 % 4 || d < -4 || d > 4) exit 1 } END { if (NR > 16) exit 1 }'
}
for file in "$files"/theirs/*.fb; do
  golden=$build/tests/data/formats/samediff/data/$(basename "$file")
  case $file in
    */convolution_trained.fb) nearly "$file" "$golden" || { echo "$file and $golden differ" >&2; exit 1; } ;;
    *) cmp "$file" "$golden" ;;
  esac
done
"$build/tests/interop_samediff" resave "$files/theirs" "$files/ours"
"${java[@]}" stele.CheckFiles "$files/theirs" "$files/ours"

"$build/tests/interop_samediff" own "$files/own"
mkdir "$files/models" && mv "$files"/own/own.* "$files/models"
"${java[@]}" stele.CheckFiles "$files/theirs" "$files/models"

python3 - "$files" <<'PYTHON'
import struct
import sys
import zipfile

folder = sys.argv[1]
archive = zipfile.ZipFile(f"{folder}/own/arrays.zip")
assert archive.testzip() is None
numbers = dict(line.rsplit(" ", 1) for line in archive.read("main/params.txt").decode().splitlines())
for line in open(f"{folder}/own/arrays.txt"):
    name = line.split(" ")[1]
    with open(f"{folder}/arrays/{name}.array.fb", "wb") as out:
        out.write(archive.read(f"main/params/{numbers[name]}.fb"))
    open(f"{folder}/arrays/{name}.array.txt", "w").write(line)
assert zipfile.ZipFile(f"{folder}/own/large.sdz").testzip() is None
shards = zipfile.ZipFile(f"{folder}/own/shards.sdz")
assert shards.testzip() is None
print("shards:", " ".join(shards.namelist()))
# The manifest of an SDNB file, and what it must say.
sdnb = open(f"{folder}/own/large.sdnb", "rb").read()
magic, version, at, length, begin = struct.unpack(">4siqqq", sdnb[:32])
assert (magic, version, begin, at + length) == (b"SDNB", 1, 32, len(sdnb))
open(f"{folder}/own/manifest.bin", "wb").write(sdnb[at:])
a, b = 512 * 512 * 4, 300 * 1000 * 4
open(f"{folder}/own/manifest.txt", "w").write(f"a {at - a - b} {a}\nb {at - b} {b}\n")
assert struct.unpack("<3f", sdnb[at - a - b:at - a - b + 12]) == (0.0, 1.0, 2.0)
PYTHON
"${java[@]}" stele.CheckFiles "$files/theirs" "$files/arrays"
"${java[@]}" stele.CheckManifest "$files/own/manifest.bin" "$files/own/manifest.txt"
unzip -tq "$files/own/arrays.zip"
unzip -tq "$files/own/shards.sdz"
# Operator descriptors: we read DL4J's, and DL4J reads ours.
unzip -p "$work"/lib/nd4j-api-*.jar nd4j-op-def.pbtxt >"$files/theirs.pbtxt"
"$build/tests/interop_operators" "$files/theirs.pbtxt" "$files/ours.pbtxt"
"${java[@]}" stele.CheckOperators "$files/ours.pbtxt"
echo "dl4j: ok"
