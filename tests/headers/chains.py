#!/usr/bin/env python3
"""Write sources that prove that each header compiles alone, with fewer parses than a source for each header.

    chains.py INCLUDE OUT COMMON HEADER...    prints the sources, one a line: those that may begin with COMMON first,
                                              after a line "common", the others after a line "other"

A header that follows only headers that it includes itself, at any depth, sees no more names than alone. So a source may
include a chain of headers, each included by the next, and headers that include COMMON may follow it, precompiled.
Includes between #if and #endif do not count.
"""

import re
import sys
from pathlib import Path


def includes(path):
    """Return the library's headers that a header includes unconditionally."""
    depth, found = 0, set()
    for line in path.read_text(encoding="utf-8").splitlines():
        depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
        match = re.match(r'#include ["<](stele/[^">]+)[">]', line)
        if match and depth == 0:
            found.add(match[1])
    return found


def main():
    folder, out, common, *headers = sys.argv[1:]
    direct, below = {}, {}

    def all_below(header):
        if header not in below:
            below[header] = set()
            direct[header] = includes(Path(folder, header))
            below[header] = direct[header].union(*map(all_below, direct[header]))
        return below[header]

    left = sorted(headers, key=lambda header: (len(all_below(header)), header))
    sources = {"common": [], "other": []}
    while left:
        chain = [left.pop()]
        kind = "common" if common in below[chain[0]] else "other"
        while True:
            next_ones = [h for h in left if h in below[chain[0]] and (kind == "other" or common in below[h])]
            if not next_ones:
                break
            left.remove(next_ones[-1])
            chain.insert(0, next_ones[-1])
        source = Path(out, re.sub(r"\W", "_", chain[-1]) + ".cpp")
        text = "".join(f"#include <{header}>\n" for header in chain)
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        sources[kind].append(str(source))
    for kind, paths in sources.items():
        print(kind, *paths, sep="\n")


if __name__ == "__main__":
    main()
