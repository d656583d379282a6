#!/usr/bin/env python3
"""Writes the recipes of packaging/ with the hashes of a release's archive.

    packaging/fill.py OWNER ARCHIVE FOLDER [URL]

OWNER is the owner of the repository `stele`. ARCHIVE is the release's .tar.gz with one folder, as a package manager
downloads it. FOLDER receives copies of the recipes and must not exist. URL, if given, replaces the address of the
archive in Conan's recipe. Fails if a recipe has another version than CMakeLists.txt, or if a placeholder is missing.
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
ARCHIVE_URL = "https://github.com/@OWNER@/stele/archive/refs/tags/v{version}.tar.gz"

# File, the version in it, and its placeholder for the hash.
RECIPES = [
    ("vcpkg/stele/vcpkg.json", r'"version": "(.*)"', None),
    ("vcpkg/stele/portfile.cmake", None, "SHA512 0\n"),
    ("conan/config.yml", r'^  "(.*)":', None),
    ("conan/all/conandata.yml", r'^  "(.*)":', NO_SHA256),
    ("conda/recipe.yaml", r'^  version: "(.*)"', NO_SHA256),
    ("homebrew/stele.rb", r"/v([0-9.]+)\.tar\.gz", NO_SHA256),
    ("nix/package.nix", r'version = "(.*)";', "lib.fakeHash"),
    ("spack/package.py", r'version\("([0-9.]+)"', NO_SHA256),
    ("debian/changelog", r"^stele \((.*)-[^-]*\)", None),
]


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
    with open(os.path.join(HERE, "../CMakeLists.txt"), encoding="utf-8") as file:
        version = re.search(r"project\(stele VERSION ([0-9.]+)", file.read()).group(1)
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
    problems = []
    for name, pattern, placeholder in RECIPES:
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            text = file.read()
        found = re.search(pattern, text, re.MULTILINE) if pattern else None
        if pattern and (not found or found.group(1) != version):
            problems.append(f"packaging/{name}: expected version {version}, found {found and found.group(1)}")
        if placeholder and text.count(placeholder) != 1:
            problems.append(f"packaging/{name}: expected {placeholder.strip()} once, found it {text.count(placeholder)} times")
    if os.path.exists(folder):
        problems.append(f"{folder} exists")
    if problems:
        sys.exit("\n".join(problems))

    for managed in sorted({name.split("/")[0] for name, _, _ in RECIPES}):
        shutil.copytree(os.path.join(HERE, managed), os.path.join(folder, managed),
                        ignore=shutil.ignore_patterns("__pycache__", "build", "check.cmake", "system", "system.profile"))
    placeholders = {name: placeholder for name, _, placeholder in RECIPES}
    for path, _, files in os.walk(folder):
        for file_name in files:
            full = os.path.join(path, file_name)
            with open(full, encoding="utf-8") as file:
                text = file.read()
            text = re.sub(r"^#.*packaging/fill\.py.*\n", "", text, flags=re.MULTILINE).lstrip("\n")
            if url:
                text = text.replace(ARCHIVE_URL.format(version=version), url)
            text = text.replace("@OWNER@", owner)
            placeholder = placeholders.get(os.path.relpath(full, folder))
            if placeholder:
                text = text.replace(placeholder, hashes[placeholder])
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5) or not re.fullmatch(r"[\w@.-]+", sys.argv[1]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
