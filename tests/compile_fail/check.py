#!/usr/bin/env python3
"""Check that a source is refused by the compiler, and says why.

    check.py SOURCE COMPILER [FLAGS...]

The source names what the compiler's output must contain, as regular expressions, one a line:

    // EXPECT: Broken.*audit
    // EXPECT-GCC: only for g++
    // EXPECT-CLANG: only for clang
    // EXPECT-FIRST: within the first 15 lines; also EXPECT-FIRST-GCC, EXPECT-FIRST-CLANG
    // FLAGS: after those of the build
    // LINES-GCC: the most lines that the output may have; also LINES-CLANG
"""

import re
import subprocess
import sys

FIRST = 15  # what a reader sees without scrolling

def main() -> int:
    source, compiler, *flags = sys.argv[1:]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    kind = "CLANG" if "clang" in version else "GCC"
    with open(source, encoding="utf-8") as file:
        text = file.read()
    wanted, first = (
        [regex for only, regex in re.findall(rf"^\s*// {name}(?:-(GCC|CLANG))?: *(.*\S)\s*$", text, re.MULTILINE)
         if only in ("", kind)] for name in ("EXPECT", "EXPECT-FIRST"))
    most = re.search(rf"^\s*// LINES-{kind}: *(\d+)", text, re.MULTILINE)
    if not wanted and not first:
        print(f"{source}: no `// EXPECT: regex` line for {kind}")
        return 1

    for more in re.findall(r"^// FLAGS: (.*)$", text, re.MULTILINE):
        flags += more.split()
    run = subprocess.run([compiler, *flags, "-fsyntax-only", source], capture_output=True, text=True, errors="replace")
    output = run.stdout + run.stderr
    faults = []
    if run.returncode == 0:
        faults.append("it compiles")
    if run.returncode < 0 or re.search(r"internal compiler error|submit a bug report|(?<!needs_cxx_20: )No such file|(?<!needs_cxx_20' )file not found", output):
        faults.append("the compiler failed for another reason")
    faults += [f"not in the output: {regex}" for regex in wanted if not re.search(regex, output)]
    lines = output.splitlines()
    faults += [f"not in the first {FIRST} lines: {regex}" for regex in first
               if not re.search(regex, "\n".join(lines[:FIRST]))]
    if most and len(lines) > int(most[1]):
        faults.append(f"{len(lines)} lines instead of {most[1]}")
    if faults:
        print(f"{source} ({kind}): " + "; ".join(faults))
        print(output)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
