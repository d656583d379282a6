#!/usr/bin/env python3
"""Make docs/generated/operators.md from ir/data/operators.pbtxt.

    operators_page.py           writes the page
    operators_page.py --check   fails if the page is not up to date
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "generated" / "operators.md"
HEAD = """# Operators of DL4J's graphs

Made from `ir/data/operators.pbtxt` by `tools/operators_page.py`. A graph of DL4J (SameDiff) stores an operation's
arguments by position; `stele::ordered` and `stele::named` (`<stele/operators.hpp>`, component `ir`) translate names to
positions and back. Each type of argument has positions of its own, in the order of the table. `?` means that the
argument may be absent, `...` that it takes several values, `= value` is the default of an argument that is left out
before a given one, `if flag` names the argument that is not 0 if this input or output is present.

The names and their order are those of DL4J's `nd4j-op-def.pbtxt` of January 2021, with the arguments that it lacks:
`beta` of batchnorm, `value` of pad, `newFormat` of reductions, the `scalar` of legacy operators, `input` of zeros_as,
`sorted` of top_k. Which arguments may be absent comes from libnd4j's source for the operators that importers emit; for
all others, every argument but the first output is marked with `?`.

| operator | inputs | outputs | integers (iArgs) | reals (tArgs) | booleans (bArgs) | dtypes (dArgs), strings |
|---|---|---|---|---|---|---|
"""
COLUMNS = {"INPUT_TENSOR": 0, "OUTPUT_TENSOR": 1, "INT64": 2, "DOUBLE": 3, "BOOL": 4, "DATA_TYPE": 5, "STRING": 5}
DEFAULTS = {"INT64": ("int64Value", "0"), "DOUBLE": ("doubleValue", "0"), "BOOL": ("boolValue", "false")}


def page() -> str:
    rows = []
    for line in (ROOT / "ir/data/operators.pbtxt").read_text().splitlines():
        if match := re.match(r'  name: "(.*)"', line):
            rows.append((match[1], [[] for _ in range(6)]))
        elif "argDescriptor" in line:
            field = dict(re.findall(r'(\w+): "?([^" ]+)', line))
            kind, text = field["argType"], f"`{field['name']}`"
            if "hasDefault" in field:
                name, zero = DEFAULTS[kind]
                text += f" = {field.get(name, zero)}"
            elif "presentIf" in field:
                text += f" if `{field['presentIf']}`"
            elif "argOptional" in field:
                text += "?"
            rows[-1][1][COLUMNS[kind]].append(text + ("..." if "isArray" in field else ""))
    return HEAD + "".join(f"| `{name}` | {' | '.join(', '.join(c) for c in columns)} |\n" for name, columns in rows)


def main() -> int:
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print("docs/generated/operators.md is not up to date: run tools/operators_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
