#!/usr/bin/env python3
"""Check that a source is refused by the compiler, and says why.

    check.py SOURCE COMPILER [FLAGS...]

The source names what the compiler's output must contain, as regular expressions, one a line:

    // EXPECT: Broken.*audit
    // EXPECT-GCC: only for g++
    // EXPECT-CLANG: only for clang
"""

import re
import subprocess
import sys


def main() -> int:
    source, compiler, *flags = sys.argv[1:]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    kind = "CLANG" if "clang" in version else "GCC"
    with open(source, encoding="utf-8") as file:
        lines = re.findall(r"^\s*// EXPECT(?:-(GCC|CLANG))?: *(.*\S)\s*$", file.read(), re.MULTILINE)
    wanted = [regex for only, regex in lines if only in ("", kind)]
    if not wanted:
        print(f"{source}: no `// EXPECT: regex` line for {kind}")
        return 1

    run = subprocess.run([compiler, *flags, "-fsyntax-only", source], capture_output=True, text=True, errors="replace")
    output = run.stdout + run.stderr
    faults = []
    if run.returncode == 0:
        faults.append("it compiles")
    if run.returncode < 0 or re.search(r"internal compiler error|submit a bug report|No such file|file not found", output):
        faults.append("the compiler failed for another reason")
    faults += [f"not in the output: {regex}" for regex in wanted if not re.search(regex, output)]
    if faults:
        print(f"{source} ({kind}): " + "; ".join(faults))
        print(output)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
