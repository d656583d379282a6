#!/usr/bin/env python3
"""Loads safetensors files to a device with stele and with other libraries, beside the speed of page-locked copies.

Usage: benchmarks/devices.py FOLDER [--device cuda:0] [--bytes 1e9] [--tensors 300 20000] [--rounds 5]

Wants PyTorch and the Python module of stele; other libraries that are not installed or fail are named. Files are written
to FOLDER and removed. All take turns; the figures are medians in GB/s. "cold": the file is not in the page cache. With
--device cpu, only tries the program.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tables import table

import stele
import stele.torch

Loader = Callable[[str], Any]


def fastsafetensors(path: str) -> Any:
    from fastsafetensors import fastsafe_open

    with fastsafe_open(filenames=[path], nogds=True, device=DEVICE) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def instanttensor(path: str) -> Any:
    from instanttensor import safe_open

    with safe_open(path, framework="pt", device=torch.device(DEVICE).index or 0) as file:
        return dict(file.tensors())


LOADERS: dict[str, Loader] = {
    "stele": lambda path: stele.torch.load_file(path, DEVICE),
    "torch.load, to()": lambda path: {
        name: tensor.to(DEVICE)
        for name, tensor in torch.load(path[: -len("safetensors")] + "pt", mmap=True, weights_only=True).items()
    },
    "safetensors": lambda path: safetensors.torch.load_file(path, DEVICE),
    "fastsafetensors": fastsafetensors,
    "InstantTensor": instanttensor,
}


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(function: Callable[[], Any]) -> float:
    gc.collect()
    synchronize()
    start = time.perf_counter()
    result = function()
    synchronize()
    elapsed = time.perf_counter() - start
    del result
    return elapsed


def page_locked_copies(size: int) -> float:
    """Returns the seconds that copies of page-locked memory to the device take, for as many bytes."""
    piece = 1 << 26
    host = torch.empty(piece, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    target = torch.empty(piece, dtype=torch.uint8, device=DEVICE)
    count = max(size // piece, 1)

    def copy() -> None:
        for _ in range(count):
            target.copy_(host, non_blocking=True)

    copy()
    return seconds(copy) * size / (count * piece)


def drop(path: str) -> None:
    """Takes a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def measure(folder: Path, size: int, count: int, rounds: int) -> list[list[str]]:
    path, pt = str(folder / "devices.safetensors"), str(folder / "devices.pt")
    tensors = {f"layers.{i}.weight": torch.randn(max(size // count // 4, 1)) for i in range(count)}
    safetensors.torch.save_file(tensors, path)
    torch.save(tensors, pt)
    size = sum(tensor.nbytes for tensor in tensors.values())
    last = f"layers.{count - 1}.weight"
    times: dict[tuple[str, str], list[float]] = {}
    failed: dict[str, str] = {}
    for name, load in LOADERS.items():
        try:
            if not torch.equal(load(path)[last].cpu(), tensors[last]):
                failed[name] = "other elements"
        except Exception as error:  # noqa: BLE001
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:80]
    limits = []
    for _ in range(rounds):
        limits.append(page_locked_copies(size))
        for cache in ("cold", "warm"):
            for name, load in LOADERS.items():
                if name in failed:
                    continue
                if cache == "cold":
                    drop(path)
                    drop(pt)
                times.setdefault((name, cache), []).append(seconds(lambda: load(path)))
    os.remove(path)
    os.remove(pt)
    limit = statistics.median(limits)
    rows = [["page-locked copies", str(count), "", f"{size / limit / 1e9:.2f}", "1"]]
    for (name, cache), found in times.items():
        median = statistics.median(found)
        rows.append([name, str(count), cache, f"{size / median / 1e9:.2f}", f"{limit / median:.2f}"])
    return rows + [[name, str(count), "", "failed", why] for name, why in failed.items()]


def main() -> None:
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--tensors", type=int, nargs="+", default=[300, 20000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    DEVICE = options.device
    rows = []
    for count in options.tensors:
        rows += measure(options.folder, int(options.bytes), count, options.rounds)
    table(["library", "tensors", "file", "GB/s", "of limit"], rows)


DEVICE = "cuda:0"
if __name__ == "__main__":
    main()
