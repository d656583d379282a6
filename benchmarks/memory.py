#!/usr/bin/env python3
"""Prints a table of the memory beyond the model of saves, loads and opens, as counted by the operating system.

Usage: benchmarks/memory.py FOLDER [PROGRAM]

PROGRAM is bench_memory; each operation runs in a separate process. Writes files (at most 4 GB, one at a time) to FOLDER
and removes them, except memory.json. Without PROGRAM, only prints memory.json.
"""
import json
import os
import subprocess
import sys

from tables import table

# Name, bytes, bytes per tensor.
MODELS = [
    ("100 MB", 100 * 2**20, 4 * 2**20),
    ("1 GB", 2**30, 16 * 2**20),
    ("4 GB", 2**32, 64 * 2**20),
    ("20,000 tensors, 41 MB", 20000 * 2048, 2048),
]
# A save, and the operations that read its file.
STEPS = [
    ("save", "", ["open", "load"]),
    ("save safetensors", "safetensors: ", ["open", "load"]),
    ("save f16", "f16: ", ["load"]),
    ("save compressed", "compressed: ", ["open", "load"]),
    ("save json.zst", "json.zst: ", ["open", "load"]),
]


def measure(folder, program):
    figures = {}
    for model, size, piece in MODELS:
        for save, kind, readers in STEPS:
            path = os.path.join(folder, "memory." + ("safetensors" if save == "save safetensors" else "stele"))
            try:
                for name, operation in [(save, save)] + [(kind + reader, reader) for reader in readers]:
                    ran = subprocess.run([program, operation, str(size), str(piece), path], check=True,
                                         stdout=subprocess.PIPE, text=True)
                    figures.setdefault(name, {})[model] = int(ran.stdout)
            finally:
                if os.path.exists(path):
                    os.remove(path)
    return figures


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = os.path.join(sys.argv[1], "memory.json")
    if sys.argv[2:]:
        figures = measure(*sys.argv[1:])
        with open(path, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    with open(path, encoding="utf-8") as file:
        figures = json.load(file)
    print("Memory beyond the model, MiB.\n")
    table(["operation"] + [model for model, _, _ in MODELS],
          [[name] + [f"{line[model] / 2**20:.1f}" for model, _, _ in MODELS] for name, line in figures.items()])


if __name__ == "__main__":
    main()
