#!/usr/bin/env python3
"""Prints the size of a stripped program, and which parts of it take the space, as the linker's map lists them.

Usage: benchmarks/size_parts.py BUILD NAME

BUILD is a build folder without joined sources in which the target NAME of benchmarks/ was built, with the map NAME.map
beside the program. Prints three tables: by folder of the sources, by source, and by symbol. A part has code, constants
and tables of the unwinder; "linker" has the tables of the dynamic linker, and the headers and padding of the file.
Templates and inline functions of the C++ library count for the source in which the linker found them first.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

from tables import table

ROWS = 20
OUTPUT = re.compile(r"^(\.[A-Za-z_.]+)?\s+0x[0-9a-f]+\s+0x[0-9a-f]+(\s+load address.*)?$")
INPUT = re.compile(r"^ (\S+)?\s+0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S.*)$")
# What the file contains of these is the linker's work.
LINKER = re.compile(r"^\.(rela|plt|got|dyn|hash|gnu|interp|note|init|fini)")


def pieces(map_file):
    """Yields (output section, input section, bytes, object file) for the pieces of the program that are in its file."""
    output, name = None, None
    with open(map_file, encoding="utf-8") as file:
        text = file.read()
    start = text.index("Linker script and memory map")
    for line in text[start:].splitlines():
        if re.match(r"^\.\S+", line):
            output, name = line.split()[0], None
            if output == ".bss" or output.startswith((".debug", ".comment")):
                output = None
            continue
        if output is None:
            continue
        if re.match(r"^ \S+$", line):  # a long name; address and size are in the next line
            name = line.strip()
            continue
        found = INPUT.match(line)
        if found:
            section, size, owner = found[1] or name, int(found[3], 16), found[4]
            if section and size and not section.startswith("*"):
                yield output, section, size, owner
        name = None


def sources_by_member():
    """Returns {name of an archive: {name of a member: folder of its source}}."""
    result = defaultdict(dict)
    for path in glob.glob("**/*.cpp", recursive=True):
        top = path.split("/")[0]
        if top in ("build", "tests", "examples", "benchmarks"):
            continue
        folder = os.path.dirname(path)
        while not os.path.exists(os.path.join(folder, "CMakeLists.txt")):
            folder = os.path.dirname(folder)
        with open(os.path.join(folder, "CMakeLists.txt"), encoding="utf-8") as file:
            component = re.search(r"^stele_component\((\w+)", file.read(), flags=re.M)
        if component:
            shown = os.path.dirname(path).split("/")
            result[f"libstele_{component[1]}.a"][os.path.basename(path) + ".o"] = "/".join(shown[:2])
    return result


def part_of(owner, members):
    """Returns the folder and the source of an object file of the map."""
    archive = re.match(r"(?:.*/)?(lib\w+\.a)\(([^)]*)\)$", owner)
    if archive and archive[1] in members:
        folder = members[archive[1]][archive[2]]
        return folder, f"{folder}/{archive[2][:-2]}"
    if archive:
        return archive[1], archive[1]
    return ("the program", "the program") if owner.endswith(".cpp.o") else ("linker", "linker")


def demangled(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), check=True, stdout=subprocess.PIPE, text=True)
    return dict(zip(names, run.stdout.splitlines()))


def shortened(symbol):
    symbol = symbol.replace("stele::v0::", "").replace("std::__cxx11::", "std::").replace("(anonymous namespace)::", "")
    symbol = symbol.replace("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string")
    symbol = re.sub(r"\(.*", "", symbol) if not symbol.startswith("(") else symbol
    return symbol if len(symbol) <= 90 else symbol[:87] + "..."


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program = os.path.join(sys.argv[1], "benchmarks", sys.argv[2])
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "-s", "-o", stripped.name, program], check=True)
        whole = os.path.getsize(stripped.name)
    members = sources_by_member()
    folders, sources, symbols = Counter(), Counter(), Counter()
    for output, section, size, owner in pieces(program + ".map"):
        if LINKER.match(output):
            continue
        folder, source = part_of(owner, members)
        folders[folder] += size
        sources[source] += size
        symbol = re.match(r"^\.(?:text|rodata|data|data\.rel\.ro)(?:\.(?:unlikely|hot|startup|local))?\.(_Z\w+|main)", section)
        symbols[symbol[1] if symbol else output] += size
    folders["linker"] += whole - sum(folders.values())
    print(f"{-(-whole // 1000)} KB, stripped.\n")
    for head, counts in (("folder", folders), ("source", sources)):
        table([head, "bytes"], [[name, str(size)] for name, size in counts.most_common(ROWS)])
    names = demangled(list(symbols))
    table(["symbol", "bytes"], [[f"`{shortened(names[name])}`", str(size)] for name, size in symbols.most_common(ROWS)])


if __name__ == "__main__":
    main()
