#!/usr/bin/env python3
"""Check that each case of a source is refused by the compiler, and says why.

    check.py SOURCE COMPILER [FLAGS...]

A line begins a case, which ends at the next one; a source without such a line is one case:

    // CASE name: comment

The case names what the compiler's output must contain, as regular expressions, one a line:

    // EXPECT: Broken.*audit
    // EXPECT-GCC: only for g++
    // EXPECT-CLANG: only for clang
    // EXPECT-FIRST: within the first 15 lines; also EXPECT-FIRST-GCC, EXPECT-FIRST-CLANG
    // LINES-GCC: the most lines that the output may have; also LINES-CLANG
    // FLAGS: after those of the build, for the whole source

clang runs once for all cases: its output of a case is the errors that name a line of the case, with their notes. g++
instantiates fewer templates after an error, so it runs once for each case, without the lines of the others.
"""

import re
import subprocess
import sys
from pathlib import Path

FIRST = 15  # what a reader sees without scrolling
OTHER_REASON = (r"internal compiler error|submit a bug report|(?<!needs_cxx_20: )No such file|"
                r"(?<!needs_cxx_20' )file not found")


def cases_of(lines):
    """Return (name, lines) of each case: a range of indices."""
    begins = [i for i, line in enumerate(lines) if line.startswith("// CASE ")]
    names = [re.match(r"// CASE (\w+)", lines[i])[1] for i in begins]
    return [*zip(names, map(range, begins, begins[1:] + [len(lines)]))] or [("", range(len(lines)))]


def errors_of(output):
    """Return the lines of each error of clang, with the files that include it and its notes."""
    errors, led = [], False  # led: the last line names an including file
    for line in output.splitlines():
        including = line.startswith("In file included from")
        if not led and (including or re.match(r"\S.*?: (fatal )?error: ", line)):
            errors.append([])
        if errors:
            errors[-1].append(line)
        led = including
    return errors


def faults_of(body, kind, lines):
    """Return what is wrong with the lines that the compiler has written for a case."""
    expected = {word: [regex for only, regex in re.findall(rf"^\s*// {word}(?:-(GCC|CLANG))?: *(.*\S)\s*$", body, re.MULTILINE)
                       if only in ("", kind)] for word in ("EXPECT", "EXPECT-FIRST", "LINES")}
    output = "\n".join(lines)
    first = "\n".join(lines[:FIRST])
    faults = [] if "error: " in output else ["it compiles"]
    if re.search(OTHER_REASON, output):
        faults.append("the compiler failed for another reason")
    if not expected["EXPECT"] and not expected["EXPECT-FIRST"]:
        faults.append(f"no `// EXPECT: regex` line for {kind}")
    faults += [f"not in the output: {regex}" for regex in expected["EXPECT"] if not re.search(regex, output)]
    faults += [f"not in the first {FIRST} lines: {regex}" for regex in expected["EXPECT-FIRST"] if not re.search(regex, first)]
    return faults + [f"{len(lines)} lines instead of {most}" for most in expected["LINES"] if len(lines) > int(most)]


def main() -> int:
    source, compiler, *flags = sys.argv[1:]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    kind = "CLANG" if "clang" in version else "GCC"
    text = Path(source).read_text(encoding="utf-8")
    lines = text.splitlines()
    cases = cases_of(lines)
    for more in re.findall(r"^// FLAGS: (.*)$", text, re.MULTILINE):
        flags += more.split()
    command = [compiler, *flags, "-I", str(Path(source).parent), "-fsyntax-only", "-x", "c++", "-"]

    def compiled(included):
        kept = [line if not any(i in case for _, case in cases) or any(i in case for _, case in included) else ""
                for i, line in enumerate(lines)]
        return subprocess.run(command, input="\n".join(kept) + "\n", capture_output=True, text=True, errors="replace").stderr

    if kind == "GCC":
        found = [compiled([case]).splitlines() for case in cases]
    else:
        command.append("-ferror-limit=0")
        found = [[] for _ in cases]
        for error in errors_of(compiled(cases)):
            numbers = [int(n) - 1 for n in re.findall(r"<stdin>:(\d+):\d+", "\n".join(error))]
            of = [i for n in numbers for i, (_, case) in enumerate(cases) if n in case]
            found[of[0] if of else 0] += error
    failed = False
    for (name, case), output in zip(cases, found):
        faults = faults_of("\n".join(lines[i] for i in case), kind, output)
        if faults:
            failed = True
            print(f"{source} {name} ({kind}): " + "; ".join(faults), *output, sep="\n")
    print(f"{len(cases)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
