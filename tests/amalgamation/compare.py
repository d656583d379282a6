#!/usr/bin/env python3
"""Compares two outputs of `files read`, file by file.

Usage: compare.py OURS THEIRS [EXCEPT]

A file of OURS with a line that contains EXCEPT is left out. Prints a table: for each kind of file, how many are equal, how
many of them are refused by both, and how many are left out.
"""
import collections
import re
import sys


def files(path):
    found, now = {}, None
    for line in open(path, encoding="utf-8"):
        if line.startswith("== "):
            now = found.setdefault(line[3:].strip(), [])
        elif now is not None:
            now.append(line)
    return found


ours, theirs = files(sys.argv[1]), files(sys.argv[2])
exception = sys.argv[3] if len(sys.argv) > 3 else ""
table, wrong = collections.defaultdict(lambda: [0, 0, 0]), []
for name in sorted(ours | theirs):
    row = table[re.search(r"(\.json)?\.\w+$", name).group()]
    if exception and any(exception in line for line in ours.get(name, [])):
        row[2] += 1
    elif ours.get(name) != theirs.get(name):
        wrong.append(name)
    else:
        row[0] += 1
        row[1] += any(line.startswith("  error") for line in ours[name])
print(f"{'golden files':20} equal  refused  left out")
for kind, (equal, refused, out) in sorted(table.items()):
    print(f"{kind:20} {equal:5}  {refused:7}  {out:8}")
for name in wrong:
    print(f"{name}:\n{''.join(ours.get(name, []))}instead of\n{''.join(theirs.get(name, []))}", file=sys.stderr)
sys.exit(bool(wrong))
