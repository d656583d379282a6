#!/usr/bin/env python3
"""Compares other libraries with the limits of the goals: saves and loads, as multiples of write and read.

Usage: benchmarks/peers.py FOLDER [BENCH_PEERS PYTHON CARGO_PROGRAM]

Each library runs in a separate process and follows commands, so that the limit and the library run alternately. Lists
libraries that cannot run as missing. Writes the results to FOLDER/peers.json; without programs, only prints them.
"""
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

from tables import table

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = ("W1", "W2")
ROUNDS = 5


class Worker:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def __call__(self, order, path):
        """Returns milliseconds. Raises a RuntimeError with the last line that the program wrote."""
        try:
            self.process.stdin.write(f"{order} {path}\n")
            self.process.stdin.flush()
            for line in self.process.stdout:  # libraries may print other lines
                if line.startswith("= "):
                    return float(line[2:])
        except BrokenPipeError:
            pass
        raise RuntimeError((self.process.stderr.read().strip().splitlines() or ["the program ended"])[-1])

    def close(self):
        try:
            self.process.communicate()
        except BrokenPipeError:
            pass


def remove(path):
    for found in glob.glob(path + "*"):  # some libraries add an extension
        os.remove(found)


def compare(limit, worker, folder):
    """Returns (save, load): medians of the rounds' ratios."""
    ratios = {"save": [], "load": []}
    raw, path = os.path.join(folder, "raw"), os.path.join(folder, "model")
    for order, found in ratios.items():
        for number in range(ROUNDS + 1):
            if order == "save":
                remove(raw), remove(path)
            least = limit(order, raw)
            ratio = worker(order, path) / least
            if number:  # the first round is a warm-up
                found.append(ratio)
    remove(raw), remove(path)
    return [statistics.median(found) for found in ratios.values()]


def measure(folder, ours, python, rust):
    script = os.path.join(HERE, "peers", "peers.py")

    # Name, and the command that runs it for a workload whose shapes are in a file.
    peers = [(name, lambda workload, _, name=library: [ours, name, workload]) for name, library in (
        ("stele", "stele"), ("stele, safetensors", "stele-safetensors"), ("stele, PyTorch's zip", "stele-pytorch"),
        ("stele, NumPy's zip", "stele-npz"), ("cereal, C++", "cereal"))]
    for name, library in (("numpy", "numpy"), ("h5py", "h5py"), ("safetensors, Python", "safetensors"),
                          ("gguf, Python", "gguf"), ("torch, Python", "torch")):
        peers.append((name, lambda _, shapes, name=library: [python, script, name, shapes]))
    for name, library in (("safetensors, Rust", "safetensors"), ("Burn, BinFileRecorder", "burn-bin"),
                          ("Burn, NamedMpkFileRecorder", "burn-mpk"), ("burn-store, Burnpack", "burn-store")):
        peers.append((name, lambda _, shapes, name=library: [rust, name, shapes]))

    figures, missing = {}, {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for workload in WORKLOADS:
            shapes = os.path.join(scratch, workload)
            with open(shapes, "w", encoding="utf-8") as file:
                subprocess.run([ours, "shapes", workload], stdout=file, check=True)
            limit = Worker([ours, "limits", workload])
            for name, command in peers:
                worker = None
                try:
                    worker = Worker(command(workload, shapes))
                    figures.setdefault(name, {})[workload] = compare(limit, worker, scratch)
                    print(name, workload, figures[name][workload], file=sys.stderr)
                except (RuntimeError, OSError) as error:
                    missing[name] = str(error)
                if worker:
                    worker.close()
            limit.close()
    return {"figures": figures, "missing": missing}


def main():
    if len(sys.argv) not in (2, 5):
        sys.exit(__doc__)
    path = os.path.join(sys.argv[1], "peers.json")
    if sys.argv[2:]:
        measured = measure(*sys.argv[1:])
        with open(path, "w", encoding="utf-8") as file:
            json.dump(measured, file, indent=1)
            file.write("\n")
    with open(path, encoding="utf-8") as file:
        measured = json.load(file)
    print("Multiples of the limit of the same rounds: write for a save, read into fresh memory for a load.\n")
    table(["library"] + [f"{order} {workload}" for workload in WORKLOADS for order in ("save", "load")],
          [[name] + [f"{ratio:.2f}" for workload in WORKLOADS for ratio in line.get(workload, (float("nan"),) * 2)]
           for name, line in measured["figures"].items()])
    for name, reason in measured["missing"].items():
        print(f"Missing: {name}: {reason}")


if __name__ == "__main__":
    main()
