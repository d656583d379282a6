#!/usr/bin/env python3
"""Formats tables, and updates the page that contains them.

Usage: benchmarks/tables.py PAGE

For each line `<!-- COMMAND -->` of PAGE, puts the output of COMMAND between it and the following line `<!-- end -->`.
"""
import re
import shlex
import subprocess
import sys


def table(head, rows):
    rows = [head] + rows
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)

    def fill(block):
        ran = subprocess.run(shlex.split(block[1]), check=True, stdout=subprocess.PIPE, text=True)
        return f"<!-- {block[1]} -->\n{ran.stdout.strip()}\n\n<!-- end -->"

    with open(sys.argv[1], encoding="utf-8") as file:
        page = file.read()
    page = re.sub(r"^<!-- (benchmarks/.*?) -->\n.*?^<!-- end -->", fill, page, flags=re.M | re.S)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
