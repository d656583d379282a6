#!/usr/bin/env python3
"""Pack golden files and fuzz seeds: each folder `data` or `corpus` below tests/ is one archive, FOLDER.zip.

    tools/test_data.py unpack [FOLDER...]         writes the files into the folders (default: all), to see or change them
    tools/test_data.py pack [--only] FOLDER...    moves the files of a folder into its archive; --only drops all others

README.md and scripts stay in the folder. The tests use the archives, which CMake unpacks to tests/data of the build
folder (cmake/SteleTestData.cmake). Equal files make equal archives: names are sorted, times are fixed, and nothing is
compressed, so that Git stores the difference between two versions.
"""

import argparse
import functools
import os
import tempfile
import zipfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
OUTSIDE = (".md", ".py")


def archives():
    """Return the paths of all archives, sorted."""
    return sorted(path for name in ("data.zip", "corpus.zip") for path in TESTS.rglob(name))


@functools.cache
def root():
    """Return a folder with the files of all archives, at their paths below tests/: CMake's, or one of this process."""
    built = os.environ.get("STELE_TEST_DATA")
    if built:
        return Path(built)
    folder = tempfile.TemporaryDirectory(prefix="stele-test-data-")
    root.owner = folder  # until the process ends
    for archive in archives():
        unpack(archive, Path(folder.name) / archive.relative_to(TESTS).with_suffix(""))
    return Path(folder.name)


def unpack(archive, folder):
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)


def pack(folder, only):
    archive = folder.with_suffix(".zip")
    files = {}
    if archive.exists() and not only:
        with zipfile.ZipFile(archive) as file:
            replaced = "products/" if (folder / "products").is_dir() else None  # written as a whole (tests/products)
            files = {name: file.read(name) for name in file.namelist() if not replaced or not name.startswith(replaced)}
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in OUTSIDE]
    files.update((path.relative_to(folder).as_posix(), path.read_bytes()) for path in found)
    with zipfile.ZipFile(archive, "w") as file:
        for name in sorted(files):
            member = zipfile.ZipInfo(name)  # of 1980
            member.external_attr = 0o644 << 16
            member.create_system = 3  # Unix, on every system
            file.writestr(member, files[name])
    for path in found:
        path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()
    print(f"{archive}: {len(files)} files")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("unpack").add_argument("folder", nargs="*", type=Path)
    packing = commands.add_parser("pack")
    packing.add_argument("--only", action="store_true")
    packing.add_argument("folder", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "unpack":
        for folder in arguments.folder or [path.with_suffix("") for path in archives()]:
            unpack(folder.with_suffix(".zip"), folder)
    else:
        for folder in arguments.folder:
            pack(folder, arguments.only)


if __name__ == "__main__":
    main()
