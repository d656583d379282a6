#!/usr/bin/env python3
"""Speed of the Python module beside safetensors and PyTorch, in one run: benchmarks/python.py FOLDER [--write PAGE].

W1: 8 tensors of 64 MiB. W2: 20,000 tensors of 256 bytes. Each figure is the best of several rounds, in turns, as a ratio
to the fastest of the others; below 1 is faster. Memory is the growth of the peak beyond the tensors' bytes, in MiB.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WORKLOADS = {"W1": (8, (4096, 4096)), "W2": (20_000, (8, 8))}


def make(folder: Path) -> None:
    import safetensors.numpy
    import torch

    for workload, (count, shape) in WORKLOADS.items():
        path = folder / f"{workload}.safetensors"
        if not path.exists():
            random = np.random.default_rng(1)
            tensors = {f"layers.{i}.weight": random.random(shape, np.float32) for i in range(count)}
            safetensors.numpy.save_file(tensors, path)
            torch.save({name: torch.from_numpy(a) for name, a in tensors.items()}, folder / f"{workload}.pt")


def touched(arrays: Any) -> Any:
    """Reads a byte of each page, as a use would."""
    for array in arrays.values() if isinstance(arrays, dict) else [arrays]:
        flat = array.reshape(-1)
        if flat.shape[0] > 1024:
            flat[::1024].sum()
    return arrays


def tasks(folder: Path, workload: str) -> dict[str, dict[str, Callable[[], Any]]]:
    import safetensors
    import safetensors.numpy
    import safetensors.torch
    import torch

    import stele

    path = str(folder / f"{workload}.safetensors")
    pt = str(folder / f"{workload}.pt")
    name = "layers.5.weight"
    arrays = {n: np.array(a) for n, a in safetensors.numpy.load_file(path).items()}
    tensors = {n: torch.from_numpy(a) for n, a in arrays.items()}
    out = str(folder / "out")

    def first(framework: str) -> Any:
        with safetensors.safe_open(path, framework) as file:
            return file.get_tensor(name)

    def part(framework: str) -> Any:
        with safetensors.safe_open(path, framework) as file:
            return file.get_slice(name)[2:4]

    def names() -> list[str]:
        with safetensors.safe_open(path, "np") as file:
            return list(file.keys())

    return {
        "open, list names": {"stele": lambda: list(stele.open(path)), "safetensors": names},
        "first tensor, NumPy": {
            "stele": lambda: touched(stele.open(path)[name].numpy()),
            "safetensors": lambda: touched(first("np")),
        },
        "first tensor, torch": {
            "stele": lambda: touched(stele.open(path)[name].torch()),
            "safetensors": lambda: touched(first("pt")),
            "torch": lambda: touched(torch.load(pt, mmap=True, weights_only=True)[name]),
        },
        "all tensors, NumPy": {
            "stele": lambda: touched(stele.open(path).numpy(copy=True)),
            "safetensors": lambda: touched(safetensors.numpy.load_file(path)),
        },
        "all tensors, NumPy, mapped": {
            "stele": lambda: stele.open(path).numpy(),
            "safetensors": lambda: safetensors.numpy.load_file(path),
        },
        "all tensors, torch": {
            "stele": lambda: touched(stele.open(path).torch()),
            "safetensors": lambda: touched(safetensors.torch.load_file(path)),
            "torch": lambda: touched(torch.load(pt, mmap=True, weights_only=True)),
        },
        "a slice of two rows": {
            "stele": lambda: stele.open(path)[name][2:4],
            "safetensors": lambda: part("np"),
        },
        "save, NumPy": {
            "stele": lambda: stele.save(arrays, out + ".safetensors", durability="process"),
            "safetensors": lambda: safetensors.numpy.save_file(arrays, out + "2.safetensors"),
        },
        "save, torch": {
            "stele": lambda: stele.save(tensors, out + ".safetensors", durability="process"),
            "safetensors": lambda: safetensors.torch.save_file(tensors, out + "2.safetensors"),
            "torch": lambda: torch.save(tensors, out + ".pt"),
        },
    }


def seconds(function: Callable[[], Any]) -> float:
    gc.collect()
    start = time.perf_counter()
    result = function()
    elapsed = time.perf_counter() - start
    del result
    return elapsed


MEMORY = """
import re, sys, numpy
path, how = sys.argv[1:3]
if how == "stele": import stele
else: import safetensors.numpy
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
open("/proc/self/clear_refs", "w").write("5")  # the peak begins here
before = peak()
arrays = stele.open(path).numpy(copy=True) if how == "stele" else safetensors.numpy.load_file(path)
print(peak() - before - sum(a.nbytes for a in arrays.values()) / 2**20)
"""


def memory(path: Path, how: str) -> float:
    run = subprocess.run([sys.executable, "-c", MEMORY, str(path), how], capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", type=Path, help="replaces the table of this page")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    make(arguments.folder)
    lines = ["| | W1: stele / fastest other | W2: stele / fastest other | fastest other |", "|---|---|---|---|"]
    rows: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for workload in WORKLOADS:
        for task, programs in tasks(arguments.folder, workload).items():
            best = {program: float("inf") for program in programs}
            for _ in range(arguments.rounds):
                for program, function in programs.items():
                    best[program] = min(best[program], seconds(function))
            other = min((p for p in programs if p != "stele"), key=lambda p: best[p])
            rows.setdefault(task, []).append(f"{best['stele'] / best[other]:.2f}")
            others.setdefault(task, []).append(other)
    for task, ratios in rows.items():
        lines.append(f"| {task} | {' | '.join(ratios)} | {', '.join(dict.fromkeys(others[task]))} |")
    growth = [
        f"{memory(arguments.folder / f'{w}.safetensors', 'stele'):.1f}, {memory(arguments.folder / f'{w}.safetensors', 'safetensors'):.1f}"
        for w in WORKLOADS
    ]
    lines.append(f"| memory beyond the tensors, all as NumPy: stele, safetensors, MiB | {' | '.join(growth)} | |")
    table = "\n".join(lines)
    print(table)
    if arguments.write:
        page = arguments.write.read_text()
        begin, end = "<!-- speed: benchmarks/python.py -->\n", "<!-- end -->"
        head, rest = page.split(begin)
        arguments.write.write_text(head + begin + table + "\n" + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
