#!/usr/bin/env python3
"""Prints the sizes of programs that load and save one class: with each recorder, and with all recorders.

Usage: benchmarks/size.py BUILD...

BUILD is a build folder in which the target `sizes` was built; its last path segment is the column's name. Prints KiB of
code and constants (text and data, as counted by `size`). stele is linked statically, all other libraries dynamically.
"""
import os
import subprocess
import sys

from tables import table

PROGRAMS = ("binary", "safetensors", "gguf", "numpy", "json", "archive", "samediff", "paddle", "nnef", "burn", "all")


def kib(program):
    output = subprocess.run(["size", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    text, data = output.splitlines()[1].split()[:2]
    return (int(text) + int(data)) // 1024


def main():
    builds = sys.argv[1:]
    if not builds:
        sys.exit(__doc__)
    rows = [[name] + [str(kib(os.path.join(build, "benchmarks", "size_" + name))) for build in builds]
            for name in PROGRAMS]
    table(["recorder"] + [os.path.basename(build) for build in builds], rows)


if __name__ == "__main__":
    main()
