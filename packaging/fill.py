#!/usr/bin/env python3
"""Writes the recipes of packaging/ with the version and the hashes of a release's archive.

    packaging/fill.py OWNER ARCHIVE FOLDER [URL]

OWNER is the owner of the repository `stele`. ARCHIVE is the release's .tar.gz with one folder, as a package manager
downloads it. FOLDER receives copies of the recipes and must not exist. URL, if given, replaces the address of the
archive in Conan's recipe. Fails if a recipe lacks a placeholder.
"""
import base64
import hashlib
import io
import os
import re
import shutil
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
NO_SHA256 = "0" * 64
ARCHIVE_URL = "https://github.com/@OWNER@/stele/archive/refs/tags/v@VERSION@.tar.gz"

# File, the place of the version in it, and its placeholder for the hash.
RECIPES = [
    ("vcpkg/stele/vcpkg.json", '"version": "@VERSION@"', None),
    ("vcpkg/stele/portfile.cmake", "v${VERSION}", "SHA512 0\n"),
    ("conan/config.yml", '"@VERSION@":', None),
    ("conan/all/conandata.yml", '"@VERSION@":', NO_SHA256),
    ("conda/recipe.yaml", 'version: "@VERSION@"', NO_SHA256),
    ("homebrew/stele.rb", ARCHIVE_URL, NO_SHA256),
    ("nix/package.nix", 'version = "@VERSION@";', "lib.fakeHash"),
    ("spack/package.py", 'version("@VERSION@"', NO_SHA256),
    ("debian/changelog", "stele (@VERSION@-1)", None),
    ("debian/control", "Package: libstele@SOVERSION@", None),
]


def version():
    """Returns the version of the tree."""
    with open(os.path.join(HERE, "../include/stele/config.hpp"), encoding="utf-8") as file:
        return re.search(r'STELE_VERSION_STRING "([0-9.]+)"', file.read()).group(1)


def missing():
    """Returns a message for each placeholder that a recipe lacks."""
    problems = []
    for name, place, placeholder in RECIPES:
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            text = file.read()
        for wanted in (place, placeholder):
            if wanted and text.count(wanted) != 1:
                problems.append(f"packaging/{name}: expected {wanted.strip()} once, found it {text.count(wanted)} times")
    return problems


def nar_hash(archive):
    """Returns the SHA-256 of Nix's archive format for the tree inside the only folder of `archive`."""
    tree = {}
    for member in archive.getmembers():
        parts = member.name.rstrip("/").split("/")[1:]
        if member.name.startswith("pax_global_header") or not parts:
            continue
        node = tree
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        if member.isdir():
            node.setdefault(parts[-1], {})
        else:
            node[parts[-1]] = member
    digest = hashlib.sha256()

    def strings(*values):
        for value in values:
            data = value if isinstance(value, bytes) else value.encode()
            digest.update(len(data).to_bytes(8, "little") + data + bytes(-len(data) % 8))

    def write(node):
        strings("(", "type")
        if isinstance(node, dict):
            strings("directory")
            for name in sorted(node, key=str.encode):
                strings("entry", "(", "name", name, "node")
                write(node[name])
                strings(")")
        elif node.issym():
            strings("symlink", "target", node.linkname)
        else:
            strings("regular")
            if node.mode & 0o100:
                strings("executable", "")
            strings("contents", archive.extractfile(node).read())
        strings(")")

    strings("nix-archive-1")
    write(tree)
    return digest.digest()


def main(owner, archive_file, folder, url=None):
    with open(archive_file, "rb") as file:
        data = file.read()
    sha256 = hashlib.sha256(data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        tree = base64.b64encode(nar_hash(archive)).decode()
    hashes = {
        NO_SHA256: sha256,
        "SHA512 0\n": f"SHA512 {hashlib.sha512(data).hexdigest()}\n",
        "lib.fakeHash": f'"sha256-{tree}"',
    }
    problems = missing()
    if os.path.exists(folder):
        problems.append(f"{folder} exists")
    if problems:
        sys.exit("\n".join(problems))

    for managed in sorted({name.split("/")[0] for name, _, _ in RECIPES}):
        shutil.copytree(os.path.join(HERE, managed), os.path.join(folder, managed),
                        ignore=shutil.ignore_patterns("__pycache__", "build", "check.cmake", "system", "system.profile"))
    placeholders = {name: placeholder for name, _, placeholder in RECIPES}
    values = {"@OWNER@": owner, "@VERSION@": version(), "@SOVERSION@": version().rpartition(".")[0]}
    for path, _, files in os.walk(folder):
        for file_name in files:
            full = os.path.join(path, file_name)
            with open(full, encoding="utf-8") as file:
                text = file.read()
            text = re.sub(r"^#.*packaging/fill\.py.*\n", "", text, flags=re.MULTILINE).lstrip("\n")
            if url:
                text = text.replace(ARCHIVE_URL, url)
            for name, value in values.items():
                text = text.replace(name, value)
            placeholder = placeholders.get(os.path.relpath(full, folder))
            if placeholder:
                text = text.replace(placeholder, hashes[placeholder])
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(full, full.replace("@SOVERSION@", values["@SOVERSION@"]))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5) or not re.fullmatch(r"[\w@.-]+", sys.argv[1]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
