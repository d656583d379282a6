#!/usr/bin/env python3
"""Memory beyond the model of saves, loads and opens, as the operating system counts it: a table.

Usage: benchmarks/memory.py PROGRAM FOLDER

PROGRAM is bench_memory; each operation runs in a process of its own. Files (4 GB at most, one at a time) are written to
FOLDER and removed, but for memory.json.
"""
import json
import os
import subprocess
import sys

# Name, bytes, bytes of a tensor.
MODELS = [
    ("100 MB", 100 * 2**20, 4 * 2**20),
    ("1 GB", 2**30, 16 * 2**20),
    ("4 GB", 2**32, 64 * 2**20),
    ("20,000 tensors, 41 MB", 20000 * 2048, 2048),
]
# A save, and what reads its file.
STEPS = [
    ("save", "", ["open", "load"]),
    ("save safetensors", "safetensors: ", ["open", "load"]),
    ("save f16", "f16: ", ["load"]),
    ("save compressed", "compressed: ", ["open", "load"]),
]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, folder = sys.argv[1:]
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
    with open(os.path.join(folder, "memory.json"), "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")
    print("Memory beyond the model, MiB.\n")
    rows = [["operation"] + [model for model, _, _ in MODELS]]
    rows += [[name] + [f"{figures[name][model] / 2**20:.1f}" for model, _, _ in MODELS] for name in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


if __name__ == "__main__":
    main()
