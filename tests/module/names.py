#!/usr/bin/env python3
"""Check that the module exports every name of the public headers: names.py [COMPILER].

The compiler, clang, lists the names that the headers declare. A name that the module exports and that no header declares
is an error when the module is compiled.
"""

import re
import subprocess
import sys
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[2] / "include"
OTHER_LIBRARIES = {"cereal", "eigen", "mpi", "remote", "torch", "xtensor"}
# Parameters of alias templates, which the compiler lists like names of the namespace.
PARAMETERS = {"Blocks", "Settings", "State", "T"}


def main() -> int:
    compiler = sys.argv[1] if len(sys.argv) > 1 else "clang++-19"
    exported, scope, scopes = {"detail", "v0"}, "", set()
    for namespace, end, using in re.findall(r"^namespace (\w+) \{|^(\})|^using ([^;]+);", (INCLUDE / "stele/stele.cppm").read_text(), re.M):
        if namespace:
            scope = namespace + "::"
            scopes.add(namespace)
        elif end:
            scope = ""
        else:
            exported.update(scope + name.split("::")[1] for name in re.split(r",\s+", using))
    exported |= scopes

    headers = [header.relative_to(INCLUDE).as_posix() for header in sorted(INCLUDE.rglob("*.hpp"))
               if "detail" not in header.parts and header.stem not in OTHER_LIBRARIES]
    source = "".join(f"#include <{header}>\n" for header in headers)
    listed = subprocess.run([compiler, "-std=c++20", "-I", str(INCLUDE), "-fsyntax-only", "-Xclang", "-ast-list", "-x", "c++", "-"],
                            input=source, check=True, capture_output=True, text=True).stdout
    public = set(re.findall(rf"^stele::((?:(?:{'|'.join(scopes - {'detail'})})::)?[A-Za-z]\w*)$", listed, re.M)) - PARAMETERS
    missing = sorted(public - exported)
    for name in missing:
        print(f"include/stele/stele.cppm does not export stele::{name}", file=sys.stderr)
    print(f"module: {len(public)} public names in {len(headers)} headers, {len(missing)} not exported")
    return 1 if missing or len(public) < 300 else 0


if __name__ == "__main__":
    sys.exit(main())
