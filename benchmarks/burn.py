#!/usr/bin/env python3
"""Runs Burn's own benchmark of saving and loading with Burn 0.21 and with stele. Prints multiples of write and read.

Usage: benchmarks/burn.py FOLDER BENCH_BURN BURN_PROGRAM
"""
import os
import statistics
import subprocess
import sys

ROUNDS = int(os.environ.get("ROUNDS", "5"))
MODEL = (1024 + 19 * 2048 + 20) * 2048 * 4  # bytes


def once(command):
    """Returns the seconds of the second of two calls, and the growth of memory in bytes."""
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return float(lines[1].split()[2]), int(lines[-1].split()[1])


def main(folder, ours, theirs):
    os.makedirs(folder, exist_ok=True)
    print(f"{'':24}{'save':>8}{'load':>8}{'Burn/stele':>22}{'memory above the model, MB':>32}")
    for form, name in (("mpk", "NamedMpk"), ("bin", "Bin"), ("bpk", "Burnpack")):
        ratios, growth = {}, {}
        for order in ("save", "load"):
            for _ in range(ROUNDS):
                path = os.path.join(folder, "model." + form)
                least, _ = once([ours, order, "raw", os.path.join(folder, "raw"), "2"])
                for who, command in (("Burn", [theirs, order, form, path, "--times", "2"]),
                                     ("stele", [ours, order, form, path, "2"])):
                    seconds, grown = once(command)
                    ratios.setdefault((order, who), []).append(seconds / least)
                    # A load creates the model; a save already has it.
                    growth.setdefault((order, who), []).append(grown - (MODEL if order == "load" else 0))
        found = {key: statistics.median(list_) for key, list_ in ratios.items()}
        for who in ("Burn", "stele"):
            against = ""
            if who == "stele":
                against = "".join(f"{found[order, 'Burn'] / found[order, 'stele']:>11.1f}" for order in ("save", "load"))
            memory = "".join(f"{max(growth[order, who]) / 1e6:>16.1f}" for order in ("save", "load"))
            print(f"{who + ', ' + name:24}{found['save', who]:>8.2f}{found['load', who]:>8.2f}{against:>22}{memory}")
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))


main(*sys.argv[1:])
