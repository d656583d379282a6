#!/usr/bin/env python3
"""Checks that Android has the C library's functions that stele calls: check.py COMPILER NM FILE... --android FILE...

The first FILEs are the objects and archives of a build for this machine; the others were compiled for Android's level, from
the sources that differ there. calls.txt lists the functions, each with the API level since which Android has it.
"""
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
LEVEL = 24  # of docs/guide/android.md
NOT_ANDROID = "src/io/os/linux/"  # CMakeLists.txt takes src/io/os/portable for Android


def names(nm, options, files):
    lines = subprocess.run([nm, *options, *files], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {line.split()[-1].partition("@")[0] for line in lines.splitlines() if line.strip() and not line.endswith(":")}


def c_library(compiler, nm):
    """Returns the names that this machine's C library exports."""
    found = set()
    for name in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libc.so"):  # the last: musl, which has one file
        path = subprocess.run([compiler, "-print-file-name=" + name], check=True, capture_output=True, text=True).stdout.strip()
        if os.path.isabs(path) and (name != "libc.so" or not found):
            found |= names(nm, ["-D", "--defined-only"], [path])
    return found


def listed():
    """Returns the level of each function, and for those that Android lacks, the sources that may call it."""
    levels, sources = {}, collections.defaultdict(set)
    with open(os.path.join(HERE, "calls.txt"), encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words and words[0] != "#":
                levels[words[0]] = int(words[1])
                sources[words[0]] = {word for word in words[2:] if "/" in word}
    return levels, sources


def callers(function):
    """Returns the sources of the library and the command that name a function."""
    found = subprocess.run(["grep", "-rlw", "--include=*.cpp", "--include=*.hpp", function,
                            *(folder for folder in os.listdir(TREE) if folder not in ("build", "tests", "benchmarks", "examples", "python")
                              and os.path.isdir(os.path.join(TREE, folder)) and not folder.startswith("."))],
                           cwd=TREE, check=False, capture_output=True, text=True)
    return set(found.stdout.split())


def main():
    compiler, nm, *files = sys.argv[1:]
    split = files.index("--android")
    library = c_library(compiler, nm)
    used = names(nm, ["-u"], files[:split]) & library
    android = names(nm, ["-u"], files[split + 1:]) & library
    if "memcpy" not in used or not android:
        sys.exit(f"{nm} found no calls: {len(used)} and {len(android)}")
    levels, sources = listed()
    problems = []
    for name in sorted(used | android):
        if name not in levels:
            problems.append(f"{name}: not in tests/android/calls.txt. Add it with the API level of bionic's map files, "
                            f"if that is {LEVEL} or less; else Android needs another way")
        elif levels[name] > LEVEL:
            if name in android:
                problems.append(f"{name}: called by code for Android, which has it since API level {levels[name]}")
            for path in sorted(callers(name) - sources[name]):
                problems.append(f"{path}: {name} exists on Android since API level {levels[name]} only")
    for path in sorted(set().union(*sources.values())):
        with open(os.path.join(TREE, path), encoding="utf-8") as file:
            if not path.startswith(NOT_ANDROID) and not re.search(r"^#.*__ANDROID__", file.read(), re.MULTILINE):
                problems.append(f"{path}: has no branch for __ANDROID__")
    print("\n".join(problems) or f"{len(used | android)} functions of the C library, all on Android {LEVEL}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
