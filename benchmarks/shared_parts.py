#!/usr/bin/env python3
"""Checks that reading files with shared and repeated parts takes linear time, by counting instructions under valgrind.

Usage: benchmarks/shared_parts.py PROGRAM

PROGRAM is bench_shared_parts, release build. It makes each kind of file in three sizes, each four times the previous.
The difference of two counts excludes costs that do not depend on the size. The ratio of the two differences is 4 for
linear time, up to 4.3 with a logarithm, and 16 for quadratic time. A ratio above 4.5 is an error.
"""
import concurrent.futures
import sys

from instructions import count

LIMIT = 4.5
PARTS = 2  # processes


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with concurrent.futures.ThreadPoolExecutor(PARTS) as pool:
        parts = list(pool.map(lambda part: count(sys.argv[1], str(part), str(PARTS)), range(PARTS)))
    kinds = {}
    for part in parts:
        for name, counted in part.items():
            kind, size = name.rsplit(": ", 1)
            kinds.setdefault(kind, {})[int(size)] = counted
    if not kinds:
        sys.exit("shared_parts: valgrind printed no counts")
    failed = []
    print(f"{'kind of file':34} {'instructions, and of each part':>32} {'ratio':>6}")
    for kind, counts in kinds.items():
        small, middle, large = sorted(counts)
        below, above = counts[middle] - counts[small], counts[large] - counts[middle]
        # A refusal must take constant time.
        ratio = above / max(below, 1000)
        failed += [kind] if ratio > LIMIT else []
        print(f"{kind:34} {counts[large]:>20} {above // (large - middle):>11} {ratio:>6.2f}"
              + ("  <--" if ratio > LIMIT else ""))
    if failed:
        sys.exit(f"shared_parts: reading takes more than linear time: {', '.join(failed)}")


if __name__ == "__main__":
    main()
