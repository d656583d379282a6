#!/usr/bin/env python3
"""Size of programs that load and save one class: with each recorder, and with all of them.

Usage: benchmarks/size.py BUILD...

BUILD is a build folder whose target `sizes` was built; its last part is the column's name. Prints KiB of code and
constants (text and data, as `size` counts them). stele is linked statically, the C++ library and others are shared.
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
