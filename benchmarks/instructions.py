#!/usr/bin/env python3
"""Counts the instructions of the hot paths under valgrind and compares them with benchmarks/instructions.txt.

Usage: benchmarks/instructions.py PROGRAM [--update]

PROGRAM is bench_hot_paths, release build. A count that differs by more than a quarter from the file's is an error;
--update rewrites the file. Unlike times, counts are the same on a busy machine. They depend on the compiler, on the
system's libraries and on the processor's SIMD, of which valgrind supports at most AVX2; this is why a quarter is
allowed.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

BASELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.txt")
TOLERANCE = 0.25


def count(program, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                        "--collect-atstart=no", os.path.abspath(program), *arguments], check=True)
        counts = {}
        for path in sorted(glob.glob(f"{folder}/out.*"), key=lambda name: int(name.rsplit(".", 1)[1])):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            name = re.search(r"^desc: Trigger: Client Request: (.+)", text, re.M)
            if name:
                counts[name[1]] = int(re.search(r"^(?:summary|totals): (\d+)", text, re.M)[1])
        return counts


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--update"]):
        sys.exit(__doc__)
    counts = count(sys.argv[1])
    if not counts:
        sys.exit("instructions: valgrind printed no counts")
    if sys.argv[2:]:
        with open(BASELINE, "w", encoding="utf-8") as file:
            file.writelines(f"{name} {counted}\n" for name, counted in counts.items())
    with open(BASELINE, encoding="utf-8") as file:
        known = {name: int(counted) for name, counted in (line.split() for line in file)}
    failed = []
    for name in {**known, **counts}:
        before, now = known.get(name), counts.get(name)
        change = now / before - 1 if before and now else None
        wrong = change is None or abs(change) > TOLERANCE
        failed += [name] if wrong else []
        percent = "" if change is None else f" {100 * change:+6.1f} %"
        print(f"{name:20} {before or '-':>12} {now or '-':>12}{percent}" + ("  <--" if wrong else ""))
    if failed:
        sys.exit(f"instructions: different from benchmarks/instructions.txt: {', '.join(failed)}; if this is intended: "
                 "make instructions UPDATE=--update")


if __name__ == "__main__":
    main()
